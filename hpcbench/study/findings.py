"""What a convergence study shows, in sentences that its numbers decide."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hpcbench.results.units import significant
from hpcbench.study.plots import series
from hpcbench.study.results import Row, spread
from hpcbench.study.table import reached_words


def findings(rows: Sequence[Row]) -> list[str]:
    """How every series grows with the batch, where runs missed the target, and which optimizer is best in the end."""
    found = []
    for label, members in series(rows).items():
        found += growth(label, [row for row in members if row.all_reached])
        if missed := [row for row in members if row.choice.failed or row.count("missed", "diverged", "failed")]:
            where = ", ".join(f"{row.point.batch:,} ({reached_words(row)})" for row in missed)
            found.append(f"{label}: not every run reached the target at batch {where}.")
    return found + best_at_largest(rows)


def growth(label: str, rows: Sequence[Row]) -> list[str]:
    """Epochs and steps at the largest batch beside those at the smallest, of rows whose runs all reached the target."""
    if len(rows) < 2:
        return []
    low, high = rows[0], rows[-1]
    epochs = fmean(low.epochs), fmean(high.epochs)
    fewer = fmean(low.values("steps")) / fmean(high.values("steps"))
    return [
        f"{label}: from batch {low.point.batch:,} to {high.point.batch:,}, {significant(epochs[1] / epochs[0])} times "
        f"the epochs ({significant(epochs[0])} to {significant(epochs[1])}) and {significant(fewer)} times fewer steps."
    ]


def best_at_largest(rows: Sequence[Row]) -> list[str]:
    """Whether the series differ at the largest batch by more than their seeds do."""
    largest = max(row.point.batch for row in rows)
    here = [row for row in rows if row.point.batch == largest and row.all_reached]
    here.sort(key=lambda row: fmean(row.epochs))
    if len(here) < 2:
        return []
    first, second = here[:2]
    fewest, next_fewest = fmean(first.epochs), fmean(second.epochs)
    noise = max((spread(row.epochs) or 0) * fmean(row.epochs) for row in (first, second))
    clear = "more" if next_fewest - fewest > 2 * noise else "no more"
    return [
        f"At batch {largest:,} {first.label} needs fewest epochs, {significant(fewest)}; {second.label} "
        f"{significant(next_fewest)}, {clear} than twice the spread over seeds apart."
    ]
