"""mpi4py where it works: the communicator that a launcher of MPI made, or nothing."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from staging.ranks.siblings import guarded_by_child

ABORT_S = 3.0
"""How long MPI's Abort may take; in some libraries it waits for a lock that a hanging operation holds."""

FORWARD_S = 0.25
"""How long the launcher has to pass on what the ranks printed; some drop what is on its way when MPI's Abort comes."""


def communicator(world_size: int | None = None) -> Any | None:
    """``MPI.COMM_WORLD`` if an MPI library loads, and has ``world_size`` ranks if that is given, else ``None``.

    ``import mpi4py`` works everywhere; it is ``from mpi4py import MPI`` that loads the library, fails without one
    (RuntimeError or ImportError), and calls MPI_Init_thread, asking for MPI_THREAD_MULTIPLE unless mpi4py is told
    otherwise (``MPI4PY_RC_THREAD_LEVEL``). It waits for all ranks of the launcher; this
    process is killed when one of its node has ended before.
    """
    loaded: list[Any] = []

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
    world = loaded[0].COMM_WORLD
    return world if world_size is None or world.Get_size() == world_size else None


def start_early(environ: Mapping[str, str]) -> None:
    """Load MPI now, under a launcher that speaks PMI, where ranks meet by it anyway.

    MPICH 5.0 sends more than its own data through PMI, with what lies behind it in memory. Slurm's plugin ``pmi2``
    loses its way in long values, and both sides then wait for ever. Zeros travel as a short text: they are what lies
    there as long as a process is small, and in a thread whose memory no other has used.
    """
    if "PMI_RANK" in environ and "MASTER_ADDR" not in environ:
        communicator()


def abort_mpi(exit_code: int) -> None:
    """Call MPI's Abort if this process initialized MPI, without which mpiexec waits for the other ranks for ever.

    May be called from any thread, while another one hangs in MPI. Waits ``FORWARD_S``, and returns after at most
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
        # The interpreter is ending and starts no more threads; nothing of ours waits in MPI then.
        module.COMM_WORLD.Abort(exit_code)
    else:
        thread.join(ABORT_S)


def uses_mpi() -> bool:
    """Whether this process has initialized MPI, and not finalized it."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized()) and not module.Is_finalized()


def finalize_mpi() -> None:
    """Call MPI's Finalize if this process initialized MPI: it returns when all ranks have called it.

    Other threads run meanwhile: the library is called directly, since mpi4py would hold the interpreter's lock, and a
    rank that waits for one that has died could not be told.
    """
    if uses_mpi():
        ctypes.CDLL(sys.modules["mpi4py.MPI"].__file__).MPI_Finalize()
