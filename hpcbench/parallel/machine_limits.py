"""How many ranks, threads and reader processes this machine can start; imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hpcbench.config.schema import RunConfig
from hpcbench.parallel.threads import first_openmp_number
from staging.bounds import shown
from staging.errors import InputError
from staging.storage.cgroup import memory_left

PER_CORE = 8
"""Ranks, threads and readers per core; more only get in each other's way."""
ALWAYS_RANKS = 16
"""Ranks that are never too many for the cores alone, so that runs of many ranks can be tried on few cores."""
ALWAYS_THREADS = 64
RANK_BYTES = 200 * 2**20
"""Memory of a rank's interpreter and libraries, before model and data."""


def check_machine(config: RunConfig, *, starts_ranks: bool) -> None:
    """Raise ``InputError`` for more ranks, threads or readers than this machine has cores and memory for.

    ``starts_ranks``: whether this process starts the ranks of ``parallel.devices``, and is not one of them.
    """
    parallel = config.parallel
    cores = os.cpu_count() or 1
    most = max(ALWAYS_THREADS, PER_CORE * cores)
    has = f"{cores} core{'s' if cores > 1 else ''}"
    for key, value in (("parallel.threads", parallel.threads), ("data.workers", config.data.workers)):
        if value is not None and value > most:
            raise InputError(f"{key} ({value}) must be at most {most} on this machine of {has}; lower it, or unset it")
    check_openmp(os.environ, most, has)
    if parallel.devices is None or not starts_ranks:
        return
    allowed = len(os.sched_getaffinity(0))
    check_ranks(parallel.devices, allowed, free_memory())


def check_openmp(environ: Mapping[str, str], most: int, machine: str) -> None:
    """Raise ``InputError`` if ``OMP_NUM_THREADS`` is not a number of threads, or is more than ``most``.

    OpenMP ignores the former and crashes with the latter, even with ``parallel.threads``. Empty means unset.
    """
    text = environ.get("OMP_NUM_THREADS", "")
    first = first_openmp_number(environ)
    if not text.strip() or (first is not None and first <= most):
        return
    raise InputError(
        f"OMP_NUM_THREADS ({shown(text)}) must be a whole number from 1 to {most} on this machine of {machine}; "
        f"{'correct' if first is None else 'lower'} it, or unset it"
    )


def check_ranks(ranks: int, cores: int, free: int) -> None:
    """Raise ``InputError`` if ``ranks`` are too many for ``cores`` and ``free`` bytes of memory."""
    most = max(ALWAYS_RANKS, PER_CORE * cores)
    if ranks > most:
        raise InputError(
            f"parallel.devices ({ranks}) must be at most {most} on this machine, where {cores} "
            f"core{'s are' if cores > 1 else ' is'} allowed; lower it, or start more ranks on more nodes with mpiexec"
        )
    if ranks > 1 and ranks * RANK_BYTES > free:
        raise InputError(
            f"parallel.devices ({ranks}) must be at most {max(1, free // RANK_BYTES)} on this machine, where "
            f"{free / 2**30:.1f} GiB of memory are free and a rank takes {RANK_BYTES // 2**20} MiB before model and "
            "data; lower it"
        )


def free_memory() -> int:
    """Bytes of memory that new processes may take, within the machine and the control group."""
    import psutil

    group = memory_left()
    available = int(psutil.virtual_memory().available)
    return available if group is None else min(group, available)
