"""Which series of a study needs fewer epochs, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hpcbench.results import units
from hpcbench.results.tables import table
from hpcbench.study.epoch_comparison import LEVEL, Comparison, Stratum, compare, holm
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.results import Row, series


@dataclass(frozen=True)
class SeriesComparison:
    """Two series at the batch sizes that both have, or at the largest of these."""

    first: str
    second: str
    batches: tuple[int, ...]
    comparison: Comparison | None
    """``None`` if all runs of one series are those of the other."""

    @property
    def where(self) -> str:
        """The batch sizes in words."""
        if len(self.batches) == 1:
            return f"batch {self.batches[0]:,}"
        return f"{len(self.batches)} batches, {self.batches[0]:,} to {self.batches[-1]:,}"


def compare_series(rows: Sequence[Row]) -> list[SeriesComparison]:
    """The comparisons of ``pairs``, with p-values adjusted for all of them together that could find anything.

    Two series are compared over the batch sizes at which both have runs of their own, and, of several, also
    at the largest if its seeds could show a difference. A borrowed rate is also compared at each of them, since what it
    costs is expected to depend on the batch.
    """
    compared = []
    for first, second in pairs(rows):
        shared = sorted({row.point.batch for row in first} & {row.point.batch for row in second})
        strata = {batch: stratum(row_at(first, batch), row_at(second, batch)) for batch in shared}
        whole = [batch for batch in shared if all(strata[batch])]
        alike = [batch for batch in shared if same(row_at(first, batch), row_at(second, batch))]
        names = first[0].label, second[0].label
        if whole:
            compared.append(SeriesComparison(*names, tuple(whole), compare([strata[batch] for batch in whole])))
            borrowed = bool(first[0].point.source)
            for batch in (whole if borrowed else whole[-1:]) if len(whole) > 1 else []:
                alone = compare([strata[batch]])
                if alone is not None and (borrowed or alone.has_seeds_for(LEVEL)):
                    compared.append(SeriesComparison(*names, (batch,), alone))
        if alike:
            compared.append(SeriesComparison(*names, tuple(alike), None))
    adjusted = iter(holm([pair.comparison for pair in compared if pair.comparison is not None]))
    return [pair if pair.comparison is None else replace(pair, comparison=next(adjusted)) for pair in compared]


def pairs(rows: Sequence[Row]) -> list[tuple[list[Row], list[Row]]]:
    """The pairs of series to compare: they differ in the optimizer, or in the placement, or one borrows its rate."""
    to_compare = []
    for first, second in combinations(series(rows).values(), 2):
        one, other = first[0].point, second[0].point
        alike = one.optimizer == other.optimizer, one.placement == other.placement
        if one.source or other.source:
            if all(alike) and not (one.source and other.source):
                to_compare.append((first, second) if one.source else (second, first))
        elif any(alike):
            to_compare.append((first, second))
    return to_compare


def row_at(rows: Sequence[Row], batch: int) -> Row:
    """The row of a series at a batch size."""
    return next(row for row in rows if row.point.batch == batch)


def stratum(first: Row, second: Row) -> Stratum:
    """The runs of two rows, except those that both have, which cannot tell the rows apart."""
    shared = common(first, second)
    return tuple(left_over(row, shared) for row in (first, second))  # type: ignore[return-value]


def left_over(row: Row, shared: set[str]) -> list[EpochRun]:
    """What the runs of a row say about the epochs to the target, without those whose trajectory is in ``shared``."""
    epoch_runs = (
        row.epoch_run(state) for run, state in row.distinct if row.copies.get(run.name, run.name) not in shared
    )
    return [run for run in epoch_runs if run is not None]


def common(first: Row, second: Row) -> set[str]:
    """The trajectories that both rows have, each named by the first run that has it."""
    one, other = ({row.copies.get(run.name, run.name) for run, _ in row.runs} for row in (first, second))
    return one & other


def same(first: Row, second: Row) -> bool:
    """Whether all runs of two rows are the same."""
    return bool(first.runs) and len(common(first, second)) == len({run.name for run, _ in first.distinct})


def ratio_words(comparison: Comparison) -> str:
    """The ratio with its interval: ``0.62 (0.55 to 0.71)``; the text says which ends the runs leave open."""
    low, high = comparison.interval
    least = f"at least {units.significant(low)}" if low > 0 else ""
    most = f"at most {units.significant(high)}" if math.isfinite(high) else ""
    if comparison.is_bound:  # no value between the ends is more likely than another
        return least or most or "open"
    if least and most:
        return units.interval(comparison.ratio, comparison.interval)
    return f"{units.significant(comparison.ratio)} ({least or most.replace('at most', 'up to') or 'open'})"


def detectable_words(comparison: Comparison) -> str:
    """The ratios that are detectable with this many seeds, or why none is."""
    if not comparison.has_seeds_for(LEVEL / comparison.together):
        return "too few seeds"
    if not math.isfinite(comparison.detectable):
        return "not known"
    return f"{units.significant(comparison.detectable)} or {units.significant(1 / comparison.detectable)}"


def p_words(p: float) -> str:
    """A p-value as in a table."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def fewer_and_more(pair: SeriesComparison) -> tuple[str, str]:
    """The two series of a comparison, that which needs fewer epochs in more pairs of runs first."""
    more = pair.comparison is not None and pair.comparison.balance > 0
    return (pair.second, pair.first) if more else (pair.first, pair.second)


def times_words(comparison: Comparison) -> str:
    """How many times as many epochs the first series takes, where it takes more.

    The evaluations of runs that tie can be so far apart that the ratio in the middle is 1 or less. Then the interval
    alone says what is known.
    """
    low, high = comparison.interval
    if comparison.ratio > 1 or comparison.is_bound:
        return ratio_words(comparison)
    if math.isfinite(high):
        return f"between {units.significant(low)} and {units.significant(high)}"
    return f"at least {units.significant(low)}" if low > 0 else "an unknown number of"


def verdict(pair: SeriesComparison) -> str:
    """A comparison as a sentence."""
    comparison = pair.comparison
    if comparison is None:
        return f"{pair.first} and {pair.second} are the same runs at {pair.where}: nothing is compared there."
    if comparison.differs:
        fewer, more = fewer_and_more(pair)
        way = comparison if comparison.balance > 0 else comparison.inverted()
        return (
            f"{fewer} needs fewer epochs than {more} at {pair.where}: {more} takes {times_words(way)} times as many "
            f"(p {p_words(comparison.p)})."
        )
    if not comparison.has_seeds_for(LEVEL):
        return few_seeds(pair, comparison)
    undecided = (
        f"{pair.first} and {pair.second} can't be told apart at {pair.where} (ratio {ratio_words(comparison)}, "
        f"p {p_words(comparison.p)})"
    )
    if not comparison.has_seeds_for(LEVEL / comparison.together):
        return f"{undecided}; one of {comparison.together} comparisons, it has too few seeds to decide by itself."
    if not math.isfinite(comparison.detectable):
        return f"{undecided}; what could be found is not known, since too few runs reached the target."
    found = units.significant(comparison.detectable)
    return f"{undecided}; a ratio of {found} would have been found in four of five such studies."


def few_seeds(pair: SeriesComparison, comparison: Comparison) -> str:
    """A comparison that no result of so few seeds could decide, with its ratio where that is known."""
    ratio = ratio_words(comparison) if comparison.is_bound else units.significant(comparison.ratio)
    if ratio in ("open", units.MISSING):
        return f"{pair.first} and {pair.second} at {pair.where}: too few seeds to see any difference."
    return (
        f"{pair.first} takes {ratio} times the epochs of {pair.second} at {pair.where}; too few seeds to see whether "
        "that is chance."
    )


def comparison_cells(compared: Sequence[SeriesComparison]) -> list[dict[str, str]]:
    """A line of a table for every comparison."""
    return [
        {
            "series": f"{pair.first} over {pair.second}", "where": pair.where,
            "ratio": "the same runs" if pair.comparison is None else ratio_words(pair.comparison),
            "p": units.MISSING if pair.comparison is None else p_words(pair.comparison.p),
            "detectable": units.MISSING if pair.comparison is None else detectable_words(pair.comparison),
        }
        for pair in compared
    ]  # fmt: skip


def comparison_lines(compared: Sequence[SeriesComparison]) -> list[str]:
    """The comparisons as lines of text."""
    cells = comparison_cells(compared)
    if not cells:
        return []
    lines = [[texts[name] for name in ("series", "where", "ratio", "p", "detectable")] for texts in cells]
    return [
        "",
        "Ratio of epochs with its 95 % interval, the p-value of no difference (Holm's, for all lines",
        "that have enough seeds), and the ratio that four of five such studies would find:",
        "",
        table(["epochs of", "at", "ratio", "p", "detectable"], lines, right=("p",)),
    ]
