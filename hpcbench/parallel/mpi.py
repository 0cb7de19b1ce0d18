"""mpi4py where it works: the world that a launcher of MPI made, or nothing."""

from __future__ import annotations

import sys
from typing import Any


def mpi_world(world_size: int) -> Any | None:
    """``MPI.COMM_WORLD`` if an MPI library loads and its world has ``world_size`` ranks, else ``None``.

    ``import mpi4py`` works everywhere; it is ``from mpi4py import MPI`` that loads the library, fails without one
    (RuntimeError or ImportError), and calls MPI_Init.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    return MPI.COMM_WORLD if MPI.COMM_WORLD.Get_size() == world_size else None


def abort_mpi(exit_code: int) -> None:
    """Call MPI's Abort if this process initialized MPI, without which mpiexec waits for the other ranks for ever."""
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized() and not module.Is_finalized():
        module.COMM_WORLD.Abort(exit_code)
