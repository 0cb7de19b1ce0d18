"""mpi4py where it works: the communicator that an MPI launcher made, or nothing."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from staging.ranks.launch import started_by_srun
from staging.ranks.readable import is_readable
from staging.ranks.siblings import guarded_by_child

ABORT_S = 3.0
"""How long MPI's Abort may take; in some libraries it waits for a lock that a hanging operation holds."""

FORWARD_S = 0.25
"""How long the launcher has to pass on what the ranks printed; on MPI's Abort, some drop output in transit."""

ANSWER_S = 2.0
"""How long mpiexec may take to answer."""

_pmi_socket: list[tuple[int, int]] = []
"""Descriptor and inode of the socket to mpiexec, if MPICH uses one."""


def communicator(world_size: int | None = None) -> Any | None:
    """``MPI.COMM_WORLD`` if an MPI library loads and, if given, it has ``world_size`` ranks; else ``None``.

    ``import mpi4py`` works everywhere; it is ``from mpi4py import MPI`` that loads the library, fails without one
    (RuntimeError or ImportError), and calls MPI_Init_thread, asking for MPI_THREAD_MULTIPLE unless mpi4py is told
    otherwise (``MPI4PY_RC_THREAD_LEVEL``). That call waits for all ranks of the launcher; this process is killed if a
    rank of its node has ended before.
    """
    loaded: list[Any] = []
    sockets = _find_pmi_socket(os.environ)

    def load() -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError):
            return
        loaded.append(MPI)

    # See start_early: the memory of a new thread is new, too.
    thread = threading.Thread(target=load, name="MPI_Init")
    with guarded_by_child(os.environ):
        thread.start()
        thread.join()
    if not loaded:
        return None
    _pmi_socket[:] = sockets if loaded[0].Get_library_version().startswith("MPICH") else []
    world = loaded[0].COMM_WORLD
    return world if world_size is None or world.Get_size() == world_size else None


def start_early(environ: Mapping[str, str]) -> None:
    """Load MPI now if the launcher speaks PMI and the ranks meet through MPI anyway.

    MPICH 5.0 sends more than its own data through PMI: also what follows them in memory. Slurm's plugin ``pmi2`` gets
    lost in long values, and both sides then wait for ever. Zeros travel as a short text: they are what is there as long
    as a process is small, and in a thread whose memory no other has used.
    """
    if "PMI_RANK" in environ and "MASTER_ADDR" not in environ:
        communicator()


def abort_mpi(exit_code: int) -> None:
    """Call MPI's Abort if this process initialized MPI; without it mpiexec waits for the other ranks for ever.

    May be called from any thread while another one hangs in MPI. Waits ``FORWARD_S``, and returns after at most
    ``ABORT_S`` more.
    """
    if not uses_mpi():
        return
    module = sys.modules["mpi4py.MPI"]
    time.sleep(FORWARD_S)
    try:
        thread = threading.Thread(target=module.COMM_WORLD.Abort, args=(exit_code,), daemon=True)
        thread.start()
    except RuntimeError:
        # The interpreter is ending and starts no more threads; none of our threads waits in MPI then.
        module.COMM_WORLD.Abort(exit_code)
    else:
        thread.join(ABORT_S)


def uses_mpi() -> bool:
    """Whether this process has initialized MPI, and not finalized it."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized()) and not module.Is_finalized()


def finalize_mpi() -> None:
    """Call MPI's Finalize if this process initialized MPI; it returns when all ranks have called it.

    Other threads run meanwhile: the library is called directly, since mpi4py would hold the interpreter's lock, and a
    rank that waits for a dead one could not be notified.
    """
    if uses_mpi():
        ctypes.CDLL(sys.modules["mpi4py.MPI"].__file__).MPI_Finalize()


def finalize_pmi() -> None:
    """Send mpiexec the PMI-1 message ``finalize``. Call it after MPI's Finalize, before ``os._exit``.

    MPICH 5 sends it in an exit handler of C, which ``os._exit`` skips. A process that exits without it counts as
    failed: mpiexec kills the ranks that exit some milliseconds later, and returns 9. Older libraries send it in MPI's
    Finalize and close the socket; nothing is sent if the descriptor is no longer that socket.
    """
    if not _pmi_socket or _pmi_socket != _find_pmi_socket(os.environ):
        return
    number, _ = _pmi_socket.pop()
    launcher = socket.socket(fileno=number)
    with contextlib.suppress(OSError):  # if mpiexec has ended
        launcher.sendall(b"cmd=finalize\n")
        is_readable(number, ANSWER_S)
    launcher.detach()  # the socket closes with this process, and not before


def _find_pmi_socket(environ: Mapping[str, str]) -> list[tuple[int, int]]:
    """Descriptor and inode of the socket to an mpiexec that speaks PMI-1, or nothing."""
    if "PMI_FD" not in environ or started_by_srun(environ):
        return []
    try:
        number = int(environ["PMI_FD"])
        status = os.fstat(number)
    except (ValueError, OSError):
        return []
    return [(number, status.st_ino)] if stat.S_ISSOCK(status.st_mode) else []
