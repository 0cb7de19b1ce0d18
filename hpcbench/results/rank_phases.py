"""Where the ranks of a run spent their time: for every phase, the median over ranks and the slowest rank by name.

The rows are those of ``ranks.csv``, one for each rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from hpcbench.phase_names import MESSAGE_TABLE, TABLE

Row = Mapping[str, Any]


@dataclass(frozen=True)
class RankPhase:
    """A phase, or a kind of message, over all ranks; seconds."""

    name: str
    label: str
    sentence: str
    median_s: float
    mean_s: float
    """Unlike medians, the means of all phases add up to the mean of the whole."""
    slowest_s: float
    slowest_rank: str
    """The rank with the most seconds, as ``rank 3 on node17``; empty where all have the same, as a single rank has."""
    parts: tuple[RankPhase, ...] = ()
    """What communication consists of, by kind of message."""


def run_phases(rows: Sequence[Row]) -> list[RankPhase]:
    """Phases of the whole run, in the order of ``TABLE``; those that took no time on any rank are left out."""
    return _phases(rows, "run_")


def step_phases(rows: Sequence[Row]) -> list[RankPhase]:
    """Phases of the steps after the warm-up, likewise, for all of these steps together."""
    return _phases([row for row in rows if row.get("steps")], "")


def _phases(rows: Sequence[Row], prefix: str) -> list[RankPhase]:
    kinds = [(kind.name, kind.label, kind.sentence) for kind in MESSAGE_TABLE]
    parts = tuple(rank_phase for kind in kinds if (rank_phase := _over_ranks(rows, prefix, *kind)) is not None)
    phases = []
    for phase in TABLE:
        more = parts if phase.name == "communication" else ()
        rank_phase = _over_ranks(rows, prefix, phase.name, phase.label, phase.sentence, more)
        if rank_phase is not None:
            phases.append(rank_phase)
    return phases


def _over_ranks(
    rows: Sequence[Row], prefix: str, name: str, label: str, sentence: str, parts: tuple[RankPhase, ...] = ()
) -> RankPhase | None:
    """A phase over all ranks; ``None`` where no rank spent time on it, or where one does not know its time."""
    column = f"{prefix}{name}_s"
    seconds = [row.get(column) for row in rows]
    known = [float(value) for value in seconds if value is not None and not math.isnan(value)]
    if not known or len(known) < len(rows) or max(known) <= 0:
        return None
    slowest = max(range(len(rows)), key=known.__getitem__)
    named = rank_name(rows[slowest]) if min(known) < max(known) else ""
    return RankPhase(name, label, sentence, median(known), fmean(known), known[slowest], named, parts)


def rank_name(row: Row) -> str:
    """A rank with its node: ``rank 3 on node17``."""
    return f"rank {int(row['rank'])} on {row['node']}"
