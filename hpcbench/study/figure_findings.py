"""What a convergence study and each of its plots show, in short sentences without their full stop.

A sentence is empty where nothing can be said. No series is called the better one unless the test of the page finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from hpcbench.results import units
from hpcbench.study.epoch_comparison import LEVEL, compare
from hpcbench.study.results import Row, series
from hpcbench.study.series_comparison import SeriesComparison, fewer_and_more

if TYPE_CHECKING:
    import pandas as pd

    from hpcbench.results.records import Run

Ends = Mapping[str, tuple[int, int, float]]
"""For each series its smallest and largest batch size, and a figure at the largest over that at the smallest."""
NOWHERE = "No run reaches the target"
MOST_NAMED = 4
"""Most series that a sentence names."""


def headline(rows: Sequence[Row], compared: Sequence[SeriesComparison]) -> str:
    """What leads the page: that no run reaches the target, else what tests say, where it is missed, how epochs grow."""
    misses = missed_finding(rows)
    return misses if misses == NOWHERE else compared_finding(compared) or misses or growth_finding(rows)


def compared_finding(compared: Sequence[SeriesComparison]) -> str:
    """Which series needs fewer epochs than which, or that no difference is found; empty if none were compared."""
    tested = [pair for pair in compared if pair.comparison is not None]
    wins = {fewer_and_more(pair): pair for pair in reversed(tested) if pair.comparison and pair.comparison.differs}
    labels = list(dict.fromkeys(label for pair in tested for label in (pair.first, pair.second)))
    if wins:
        return winners_finding(wins, labels)
    able = [pair for pair in tested if pair.comparison and pair.comparison.has_seeds_for(LEVEL)]
    if able:
        names = dict.fromkeys(label for pair in able for label in (pair.first, pair.second))
        return f"No difference in epochs is found between {named(list(names))}"
    return f"Too few seeds to tell {named(labels)} apart" if labels else ""


def winners_finding(wins: Mapping[tuple[str, str], SeriesComparison], labels: Sequence[str]) -> str:
    """The series that needs fewer epochs than most others, with all that need fewer than the same ones, and where."""
    beaten = {label: [worse for worse in labels if (label, worse) in wins] for label in labels}
    p_of = {pair: won.comparison.p for pair, won in wins.items() if won.comparison is not None}
    least_p = {label: min((p_of[label, worse] for worse in beaten[label]), default=1.0) for label in labels}
    best = max(labels, key=lambda label: (len(beaten[label]), -least_p[label]))
    winners = [label for label in labels if beaten[label] == beaten[best]]
    places = {wins[winner, worse].where for winner in winners for worse in beaten[best]}
    where = f" at {places.pop()}" if len(places) == 1 else ""
    return f"{named(winners)} need{'s' if len(winners) == 1 else ''} fewer epochs than {named(beaten[best])}{where}"


def named(labels: Sequence[str]) -> str:
    """Series as a part of a sentence: ``lars, lamb and sgd``."""
    if len(labels) > MOST_NAMED:
        return f"{len(labels)} series"
    *others, last = labels
    return f"{', '.join(others)} and {last}" if others else last


def missed_finding(rows: Sequence[Row]) -> str:
    """At which batch sizes no run reaches the target, of all series or of the only one that fails somewhere."""
    rows = [row for row in rows if not row.nothing_to_borrow]
    nowhere = {(row.label, row.point.batch) for row in rows if missed(row)}
    batches = sorted({row.point.batch for row in rows})
    for_all = [batch for batch in batches
               if all((row.label, batch) in nowhere for row in rows if row.point.batch == batch)]  # fmt: skip
    if for_all:
        return NOWHERE if for_all == batches else f"{NOWHERE} at {batch_words(for_all)}"
    labels = sorted({label for label, _ in nowhere})
    if len(labels) == 1:
        where = batch_words(sorted(batch for _, batch in nowhere))
        return f"{labels[0]} does not reach the target at {where}"
    return f"{named(labels)} do not reach the target at every batch size" if labels else ""


def missed(row: Row) -> bool:
    """Whether all runs of a row are done and none of them reached the target."""
    done = row.count("missed", "diverged", "failed")
    return row.choice.failed or (bool(done) and not row.left and not row.count("reached"))


def batch_words(batches: Sequence[int]) -> str:
    """``batch 8``, ``batches 8, 16 and 32``."""
    *others, last = [f"{batch:,}" for batch in batches]
    return f"batches {', '.join(others)} and {last}" if others else f"batch {last}"


def growth_finding(rows: Sequence[Row]) -> str:
    """By how much epochs grow from the smallest batch size to the largest; of one series with its interval."""
    ends = ends_of(rows, "epochs_to_target")
    said = factor_words(ends, "the epochs")
    if len(ends) == 1:
        (label,) = ends
        full = reached_rows(rows)[label]
        comparison = compare([(full[-1].epoch_runs, full[0].epoch_runs)])
        if comparison is not None and comparison.bounded:
            said += " (95 %: {}x to {}x)".format(*map(units.significant, comparison.interval))
    return said


def epochs_finding(rows: Sequence[Row]) -> str:
    """How epochs grow, and where the target is missed; if neither can be said, between which means they are."""
    grows, misses = growth_finding(rows), missed_finding(rows)
    if grows and misses:
        return f"{grows}; {misses[:1].lower() + misses[1:] if misses.startswith('No ') else misses}"
    return grows or misses or means_finding(rows, "epochs_to_target", "epochs")


def means_finding(rows: Sequence[Row], name: str, what: str) -> str:
    """Between which values the means of the number ``name`` of summaries lie, over the rows."""
    means = [fmean(row.values(name)) for row in rows if row.values(name)]
    ends = list(dict.fromkeys(units.significant(mean) for mean in (min(means), max(means)))) if means else []
    return f"{' to '.join(ends)} {what} to the target on average" if ends else ""


def steps_finding(rows: Sequence[Row]) -> str:
    """By how much samples grow and steps fall; if no series tells, between which means the samples are."""
    samples, steps = (factor_words(ends_of(rows, name), f"the {name}") for name in ("samples", "steps"))
    if not samples:
        return means_finding(rows, "samples", "samples")
    return f"{samples} and {steps.partition(', ')[2]}"


def reached_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each series all of whose runs reached the target, of series that have two of them."""
    full = {label: [row for row in members if row.all_reached] for label, members in series(rows).items()}
    return {label: members for label, members in full.items() if len(members) > 1}


def ends_of(rows: Sequence[Row], name: str) -> Ends:
    """The means of the number ``name`` of summaries, at the largest batch size over the smallest."""
    return {
        label: (full[0].point.batch, full[-1].point.batch, fmean(full[-1].values(name)) / fmean(full[0].values(name)))
        for label, full in reached_rows(rows).items()
    }


def factor_words(ends: Ends, what: str) -> str:
    """``From batch 8 to 64, 1.30x (lamb) to 4.20x (lars) the epochs``, of the series that span the widest range."""
    if not ends:
        return ""
    low, high = max(((low, high) for low, high, _ in ends.values()), key=lambda pair: pair[1] / pair[0])
    factors = {label: factor for label, (first, last, factor) in ends.items() if (first, last) == (low, high)}
    order = sorted(factors, key=factors.__getitem__)
    texts = {label: f"{units.significant(factors[label])}x" for label in (order[0], order[-1])}
    if len(set(texts.values())) > 1:
        texts = {label: f"{text} ({label})" for label, text in texts.items()}
    of = f" ({order[0]})" if len(factors) == 1 and len(ends) > 1 else ""
    return f"From batch {low:,} to {high:,}, {' to '.join(dict.fromkeys(texts.values()))} {what}{of}"


def time_finding(shortest: Mapping[str, int]) -> str:
    """On how many ranks each series has its shortest time to the target."""
    least, most = (pick(shortest, key=lambda label: shortest[label]) for pick in (min, max))
    if shortest[least] == shortest[most]:
        every = " with every series" if len(shortest) > 1 else ""
        return f"The time to the target is shortest on {units.counted(shortest[least], 'rank')}{every}"
    return f"The time to the target is shortest on {shortest[least]:,} ({least}) to {shortest[most]:,} ranks ({most})"


def quality_finding(rows: Sequence[Row], curves: Mapping[str, Run]) -> str:
    """How many of the runs that are drawn reached the target."""
    states = [state.status for row in rows for run, state in row.runs if run.name in curves]
    target = next(iter(curves.values())).summary.target
    if target is None:
        return ""
    return f"{states.count('reached')} of {units.counted(len(states), 'run')} reach the target of {units.score(target)}"


def search_finding(rows: Sequence[Row]) -> str:
    """How many searches are done, then which wait for failed runs, which diverged, and whose rates are at an edge."""
    searched = [row for row in rows if row.search]
    done = [row for row in searched if row.choice.failed or row.choice.blocked or row.choice.multiplier is not None]
    if len(done) < len(searched):
        return f"{len(done)} of {len(searched)} searches are done"
    for chosen, one, several in (
        ([row for row in done if row.choice.blocked],
         "No rate is chosen for {}: runs of its search failed", "No rates are chosen for {}: runs of searches failed"),
        ([row for row in done if row.choice.failed],
         "Every run of the search of {} diverged", "Every run of the searches of {} diverged"),
        ([row for row in done if row.at_edge and not row.choice.failed],
         "The chosen rate of {} is at an edge of what was tried",
         "The chosen rates of {} are at an edge of what was tried"),
    ):  # fmt: skip
        parts = [f"{label} at {batch_words([row.point.batch for row in members])}"
                 for label, members in series(chosen).items()]  # fmt: skip
        if parts:
            return (one if len(chosen) == 1 else several).format(named(parts))
    return "Every chosen rate lies between others that were tried"


def layers_finding(drawn: Mapping[str, Sequence[tuple[Row, bool, pd.DataFrame]]]) -> str:
    """How much more a step changes the layers at the largest batch size than at the smallest."""
    ends = {}
    for label, members in drawn.items():
        medians = {row.point.batch: float(table["change"].median()) for row, _, table in members}
        low, high = min(medians), max(medians)
        if low < high and medians[low]:
            ends[label] = (low, high, medians[high] / medians[low])
    return factor_words(ends, "the change of a layer in a step")
