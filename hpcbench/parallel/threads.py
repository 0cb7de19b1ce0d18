"""Compute threads of each rank: as ``OMP_NUM_THREADS`` says, or its share of the cores that it may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports torch
    from hpcbench.parallel.group import Group

CGROUP = Path("/sys/fs/cgroup")
DIGITS = 18
"""Digits read of a number of threads: ``int`` refuses thousands of them, and this many are too many threads anyway."""


def threads_per_rank(group: Group, requested: int | None = None) -> int:
    """Threads for this rank, at least 1: ``requested``, ``OMP_NUM_THREADS``, or its share of its node's allowed cores.

    Ranks that a launcher has bound to cores of their own keep them; ranks that share cores divide them.
    """
    if requested is not None:
        return requested
    asked = openmp_threads(os.environ)
    affinities = group.all_gather_object((group.launch.node_rank, sorted(os.sched_getaffinity(0))))
    neighbours = [set(cores) for node, cores in affinities if node == group.launch.node_rank]
    if asked is not None:
        return asked
    share = core_share(os.sched_getaffinity(0), neighbours)
    quota = cpu_quota()
    if quota is not None:
        share = min(share, quota / group.launch.local_size)
    return max(1, int(share))


def openmp_threads(environ: Mapping[str, str]) -> int | None:
    """What ``OMP_NUM_THREADS`` asks for, or the first number of a list; ``None`` without a number above 0.

    torchrun sets it to 1 if nobody else has, so that 1 under torchrun asks for nothing.
    """
    first = first_openmp_number(environ)
    return None if first == 1 and "TORCHELASTIC_RUN_ID" in environ else first


def first_openmp_number(environ: Mapping[str, str]) -> int | None:
    """The number, or first of a list, in ``OMP_NUM_THREADS``; ``None`` if that is not a number above 0."""
    first = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if not (first.isascii() and first.isdigit()):
        return None
    digits = first.lstrip("0")[:DIGITS]
    return int(digits) if digits else None


def core_share(mine: set[int], neighbours: list[set[int]]) -> float:
    """Cores that a rank with the cores ``mine`` gets if every core is shared among the ranks that may use it.

    ``neighbours`` holds the cores of all ranks of the node, this one included.
    """
    # The small term absorbs rounding: three thirds must make one.
    return sum(1 / sum(core in other for other in neighbours) for core in mine) + 1e-9


def cpu_quota(root: Path = CGROUP) -> float | None:
    """CPUs' worth of time that the control group (version 2 or 1) allows; ``None`` without a limit."""
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return None
