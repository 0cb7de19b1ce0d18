"""What a convergence study shows, in sentences that follow from its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hpcbench.results.units import significant
from hpcbench.study.epoch_comparison import LEVEL, compare
from hpcbench.study.results import Row, series
from hpcbench.study.seed_spread import LEAST_BATCHES, SpreadTrend, spread_trend
from hpcbench.study.series_comparison import SeriesComparison, p_words, verdict
from hpcbench.study.table import reached_words

MOST_UNDECIDED = 4
"""Comparisons with too few seeds that have a sentence each."""


def findings(rows: Sequence[Row], compared: Sequence[SeriesComparison]) -> list[str]:
    """How each series grows with the batch, where runs missed the target, which series differ, and how seeds spread."""
    sentences = []
    for label, members in series(rows).items():
        sentences += growth(label, [row for row in members if row.all_reached])
        run = [row for row in members if not row.nothing_to_borrow]
        if missed := [row for row in run if row.choice.failed or row.count("missed", "diverged", "failed")]:
            none = [row for row in missed if not row.count("reached")]
            some = [row for row in missed if row.count("reached")]
            for runs, batches in (("no run", none), ("not every run", some)):
                where = ", ".join(f"{row.point.batch:,} ({reached_words(row)})" for row in batches)
                sentences += [f"{label}: {runs} reached the target at batch {where}."] if where else []
    return sentences + verdicts(compared) + spread_words(rows)


def verdicts(compared: Sequence[SeriesComparison]) -> list[str]:
    """A sentence for each comparison; many that have too few seeds share one, since the table has their ratios."""
    few = [pair for pair in compared if pair.comparison is not None and not pair.comparison.has_seeds_for(LEVEL)]
    if len(few) <= MOST_UNDECIDED:
        return [verdict(pair) for pair in compared]
    example = f"{few[0].first} with {few[0].second} at {few[0].where}"
    return [
        *(verdict(pair) for pair in compared if pair not in few),
        f"{len(few)} comparisons, such as {example}, have too few seeds to see any difference; the table has their "
        "ratios.",
    ]


def growth(label: str, rows: Sequence[Row]) -> list[str]:
    """Epochs and steps at the largest batch beside those at the smallest, of rows whose runs all reached the target."""
    if len(rows) < 2:
        return []
    low, high = rows[0], rows[-1]
    epochs = fmean(low.epochs), fmean(high.epochs)
    fewer = fmean(low.values("steps")) / fmean(high.values("steps"))
    comparison = compare([(high.epoch_runs, low.epoch_runs)])
    ends = (
        ""
        if comparison is None or not comparison.bounded
        else "; 95 %: {}x to {}x".format(*map(significant, comparison.interval))
    )
    return [
        f"{label}: from batch {low.point.batch:,} to {high.point.batch:,}, {significant(epochs[1] / epochs[0])}x the "
        f"epochs ({significant(epochs[0])} to {significant(epochs[1])}{ends}) and {significant(fewer)}x fewer steps."
    ]


def spread_words(rows: Sequence[Row]) -> list[str]:
    """Whether the spread between seeds changes with the batch, for every series."""
    sentences = []
    for label, members in series(rows).items():
        known = [row for row in members if row.all_reached and len(row.epochs) > 1]
        if len(known) < LEAST_BATCHES:
            continue
        trend = spread_trend([(row.point.batch, row.epochs) for row in known], known[0].step)
        if trend is None:
            sentences.append(f"{label}: evaluations are too far apart to tell how the spread between seeds changes.")
        else:
            sentences.append(f"{label}: {trend_words(trend)}")
    return sentences


def trend_words(trend: SpreadTrend) -> str:
    """A trend as the end of a sentence."""
    ends = " to ".join(significant(end) for end in trend.interval)
    where = f"from batch {trend.smallest:,} to {trend.largest:,}"
    if trend.changes:
        way = "grows" if trend.ratio > 1 else "shrinks"
        return (
            f"the spread between seeds {way} {where}, by a factor of {significant(trend.ratio)} ({ends}, "
            f"p {p_words(trend.p)})."
        )
    return f"no trend of the spread between seeds {where} (factor {significant(trend.ratio)}, {ends})."
