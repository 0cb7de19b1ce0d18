"""What a reader must know about how the rates of a study were found: method, what was tried, and with how many runs."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.results import units
from hpcbench.study.definition import Study
from hpcbench.study.plan import Point, rate
from hpcbench.study.results import Row

TIMES = ("", "once", "twice")
WIDEST = 28
"""Columns for the rates of a row in a plan."""


def search_notes(study: Study, rows: Sequence[Row]) -> list[str]:
    """The method of the search, and its runs for every optimizer."""
    if len(study.lr_search) == 1:
        return ["No search: every row has the rule's rate, and no optimizer more runs than another."]
    tried = ", ".join(f"{multiplier:g}" for multiplier in study.lr_search)
    if study.lr_search_seeds == 1 and not study.lr_search_widen:
        return [
            f"By search: {len(study.lr_search)} runs with a seed of its own in every row that borrows nothing, the "
            f"same number for every optimizer, at {tried} x the rule's rate; the best by epochs to target, then by "
            "quality.",
            *not_lent(rows),
            *blocked(rows),
        ]
    halving = (
        f" The better half gets a further seed, up to {study.lr_search_seeds} (successive halving)."
        if study.lr_search_seeds > 1
        else ""
    )
    widening = (
        f" Where the best of a row is at an edge, all rows of its optimizer try a further multiple, at most "
        f"{TIMES[study.lr_search_widen]}."
        if study.lr_search_widen
        else ""
    )
    method = (
        f"By search: every row that borrows nothing tries {tried} x the rule's rate with a seed that is none of the "
        f"study's.{halving}{widening} The best by mean epochs to target, a miss counting worst, then by quality."
    )
    return [method, f"Runs that chose rates: {'; '.join(effort(study, rows))}.", *not_lent(rows), *blocked(rows)]


def not_lent(rows: Sequence[Row]) -> list[str]:
    """Which rows have no runs, since no rate that they could borrow reached the target."""
    labels = dict.fromkeys(row.label for row in rows if row.nothing_to_borrow)
    if not labels:
        return []
    return [f"Not run, since no rate reached the target where it would be borrowed: {', '.join(labels)}."]


def blocked(rows: Sequence[Row]) -> list[str]:
    """Which rows have no rate until runs of a search that failed are made again."""
    where = ", ".join(f"{row.label} at {row.point.batch:,}" for row in rows if row.choice.blocked)
    if not where:
        return []
    return [
        f"No rate before a retry, since runs of the search failed and no other reached or missed the target: {where}."
    ]


def effort(study: Study, rows: Sequence[Row]) -> list[str]:
    """For every optimizer, how many runs its search took, and between which multiples: ``lars 24 at 0.5 to 8``.

    While some of the runs are still to be made: ``lars 7 of 24 at 0.5 to 8``.
    """
    efforts = []
    for name in study.optimizers:
        runs = [pair for row in rows if row.point.optimizer == name for pair in row.search]
        multipliers = sorted({run.multiplier for run, _ in runs})
        if multipliers:
            ended = sum(state.final for _, state in runs)
            count = f"{ended}" if ended == len(runs) else f"{ended} of {len(runs)}"
            efforts.append(f"{name} {count} at {multipliers[0]:g} to {multipliers[-1]:g}")
    return efforts


def rates_tried(study: Study, point: Point, window: Sequence[float]) -> str:
    """The rates that the search of a row tries, for a column of a plan."""
    rates = [units.significant(rate(study, point, multiplier), 2) for multiplier in window]
    listed = " ".join(rates)
    return listed if len(listed) <= WIDEST else f"{rates[0]} to {rates[-1]} ({len(rates)})"
