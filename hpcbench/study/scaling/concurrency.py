"""Whether the instances of a throughput point trained at the same time, by the clocks of their own logs.

The rules' time of several instances is from the first ``run_start`` to the last ``run_stop`` of those that count; any
instance may be pruned (MLPerf HPC training rules, section on throughput). An instance that trained at another time than
the others does not show how they slow one another down, so it is pruned here, and the reason is given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from hpcbench.results import units
from hpcbench.results.attempts import Attempts
from hpcbench.results.mllog_reader import read_events
from hpcbench.results.run_folder import RunFolder
from staging.errors import DataError

LATE = 0.1
"""An instance may begin this late after the first, as a part of the median training, and be interrupted this long."""
CLOCKS_S = 1.0
"""How far the clocks of two nodes may differ; a shorter delay shows nothing."""

Period = tuple[float, float]
"""Begin and end in seconds since 1970."""
Cause = Literal["failed", "late", "interrupted", "missed"]


@dataclass(frozen=True)
class InstanceClock:
    """When one instance was on the clock, in seconds since 1970 by the clock of its first node."""

    name: str
    """Name of its run folder."""
    start_s: float
    """Time of ``run_start``."""
    stop_s: float
    """Time of ``run_stop``."""
    gaps: Sequence[Period] = ()
    """Periods between its attempts, in which it did not run."""

    @property
    def running(self) -> list[Period]:
        """The periods in which it trained."""
        ends = [self.start_s, *(end for gap in self.gaps for end in gap), self.stop_s]
        return [(begin, end) for begin, end in zip(ends[::2], ends[1::2], strict=True) if end > begin]

    @property
    def running_s(self) -> float:
        """Seconds in which it trained."""
        return sum(end - begin for begin, end in self.running)

    @property
    def away_s(self) -> float:
        """Seconds on the clock in which it did not train."""
        return self.stop_s - self.start_s - self.running_s


@dataclass(frozen=True)
class Pruned:
    """An instance that does not count, or that did not train a model."""

    name: str
    cause: Cause
    reason: str
    """What happened to it: ``began 24 h 00 min after the first``."""


def read_clock(path: Path) -> InstanceClock:
    """The clock of the run in the folder ``path``. Raises ``DataError`` if its log lacks the start or the end."""
    log = RunFolder(path).mllog
    times = {event.key: event.time_ms / 1e3 for event in read_events(log)[0]}
    if "run_start" not in times or "run_stop" not in times:
        raise DataError(log, "lacks run_start or run_stop", "run it again")
    start_s, stop_s = times["run_start"], times["run_stop"]
    attempts = Attempts.read(path).attempts
    between = [(before.ended, after.started) for before, after in pairwise(attempts)]
    gaps = [(max(start_s, begin), min(stop_s, end)) for begin, end in between if begin < stop_s and end > start_s]
    return InstanceClock(path.name, start_s, stop_s, tuple(gap for gap in gaps if gap[1] > gap[0]))


def concurrent(clocks: Sequence[InstanceClock]) -> tuple[list[InstanceClock], list[Pruned]]:
    """The largest set of instances that ran at the same time, in order, and why each of the others did not.

    Instances run at the same time if each begins within ``LATE`` of the median training after the first of them, and
    none is interrupted for more than that part of its own training. They may end at different times, as trainings to a
    target do.
    """
    whole = [clock for clock in clocks if clock.away_s <= LATE * clock.running_s]
    together = _together(whole)
    known = {clock.name for clock in together}
    began = {clock.name for clock in whole}
    pruned = [
        Pruned(clock.name, "late", _when(clock, together))
        if clock.name in began
        else Pruned(clock.name, "interrupted", f"was interrupted for {units.duration(clock.away_s)}")
        for clock in clocks
        if clock.name not in known
    ]
    return [clock for clock in clocks if clock.name in known], pruned


def share_together(clocks: Sequence[InstanceClock]) -> float:
    """The part of the training time of all instances in which all of them trained: from 0 to 1."""
    total = sum(clock.running_s for clock in clocks)
    changes = sorted((moment, step) for clock in clocks for period in clock.running
                     for moment, step in zip(period, (1, -1), strict=True))  # fmt: skip
    count, seconds = 0, 0.0
    for (moment, step), (following, _) in pairwise(changes):
        count += step
        seconds += following - moment if count == len(clocks) else 0.0
    return len(clocks) * seconds / total if total > 0 else 0.0


def span_s(clocks: Sequence[InstanceClock]) -> float:
    """Seconds from the first ``run_start`` to the last ``run_stop``."""
    return max(clock.stop_s for clock in clocks) - min(clock.start_s for clock in clocks)


def last_start_s(clocks: Sequence[InstanceClock]) -> float:
    """Seconds from the first ``run_start`` to the last."""
    starts = [clock.start_s for clock in clocks]
    return max(starts) - min(starts)


def _together(clocks: Sequence[InstanceClock]) -> list[InstanceClock]:
    """The largest set whose starts are close enough to one another; among equally large ones, the earliest."""
    if not clocks:
        return []
    room = CLOCKS_S + LATE * median(clock.running_s for clock in clocks)
    order = sorted(clocks, key=lambda clock: clock.start_s)
    starts = [clock.start_s for clock in order]
    sets = [order[number : bisect_right(starts, start + room)] for number, start in enumerate(starts)]
    return max(sets, key=len)


def _when(late: InstanceClock, others: Sequence[InstanceClock]) -> str:
    """How far from the start of the others an instance began, and whether they had ended."""
    first, last = min(clock.start_s for clock in others), max(clock.stop_s for clock in others)
    if late.start_s < first:
        over = ", and had ended by then" if late.stop_s <= first else ""
        return f"began {units.duration(first - late.start_s)} before the others{over}"
    over = ", when these had ended" if late.start_s >= last else ""
    return f"began {units.duration(late.start_s - first)} after the others{over}"
