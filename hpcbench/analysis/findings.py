"""What an analysis shows, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import median

from hpcbench.analysis.comparable import why_not_comparable
from hpcbench.analysis.decomposition import TERMS, Decomposition
from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.machine_names import Labels
from hpcbench.analysis.ranking import MINUTE_S, Ranking
from hpcbench.analysis.staging_rows import StagingRow
from hpcbench.analysis.variation_rows import VariationRow, middle
from hpcbench.application_names import application_name
from hpcbench.results import units

TOLD = 0.02
"""Factors closer to 1 than this are not mentioned."""
MOST_TOLD = 4


def pair_sentence(pair: Decomposition, labels: Labels) -> str:
    """Why one entry takes longer than the other, its largest factors first.

    They multiply the time: a factor above 1 of the rate is a lower rate.
    """
    slow, fast, sign = (pair.a, pair.b, 1.0) if pair.total >= 0 else (pair.b, pair.a, -1.0)
    told = sorted(
        ((term, sign * pair.terms[term.name]) for term in TERMS if abs(pair.terms.get(term.name, 0.0)) > TOLD),
        key=lambda factor: -abs(factor[1]),
    )  # fmt: skip
    reasons = ", ".join(f"{term.label} ×{units.significant(exp(value))}" for term, value in told[:MOST_TOLD])
    return (
        f"{labels[slow.identity]} takes {exp(abs(pair.total)):.2f} times as long as {labels[fast.identity]}"
        + (f"; factors of the time: {reasons}" if reasons else "") + "."
    )  # fmt: skip


def ranking_sentences(ranking: Ranking, labels: Labels, pairs: Sequence[Decomposition]) -> list[str]:
    """The base, and the pairs that are shown in detail."""
    base = ranking.base
    seconds = base.score_s or 0.0
    score = (
        f"{units.significant(MINUTE_S / seconds)} models per minute" if base.throughput
        else f"{units.significant(seconds / MINUTE_S)} minutes"
    )  # fmt: skip
    what = "The best" if base is ranking.entries[0] else "The base"
    name = f"{application_name(ranking.application)}, {ranking.mode}"
    head = f"{name}: {what.lower()} of {len(ranking.entries)} entries is {labels[base.identity]} with {score}."
    return [head, *(pair_sentence(pair, labels) for pair in pairs)]


def staging_sentences(rows: Sequence[StagingRow], labels: Labels) -> list[str]:
    """Where staging is a large part of a run."""
    large = sorted((row for row in rows if (row.share or 0) > 0.1), key=lambda row: -(row.share or 0))
    if not large:
        return []
    most = large[0]
    return [
        f"Staging takes more than a tenth of the time in {len(large)} of {len(rows)} entries, at most "
        f"{units.whole_percent(most.share or 0)} ({application_name(most.application)}, "
        f"{labels[most.application, most.entry]})."
    ]


def variation_sentences(rows: Sequence[VariationRow]) -> list[str]:
    """Medians over entries, counting those of the same runs once."""
    rows = [row for row in rows if not row.same_as]
    time, epochs, epoch_s, share = (middle(rows, name) for name in ("time_sd", "epochs_sd", "epoch_s_sd", "explained"))
    if time is None or epochs is None or epoch_s is None or share is None:
        return []
    vary = sum(row.epochs_sd is not None for row in rows)
    told = sum(row.explained is not None for row in rows)
    return [
        f"Between the runs of an entry ln(time) has a standard deviation of {time:.3f} and ln(seconds per epoch) of "
        f"{epoch_s:.3f} (medians over {units.counted(len(rows), 'entry', 'entries')}), ln(epochs) of {epochs:.3f} "
        f"(over {vary}); epochs explain {units.whole_percent(share)} of the variance of the time in the median of the "
        f"{told} whose epochs vary."
    ]


def closing_sentences(entries: Sequence[EntryRuns]) -> list[str]:
    """How much of a run no phase of its log covers."""
    shares = [
        abs(run.rest_s) / run.time_to_train_s for entry in entries for run in entry.kept
        if run.rest_s is not None and run.time_to_train_s
    ]  # fmt: skip
    if not shares:
        return []
    return [f"What no phase of a log covers, the rest, is {100 * median(shares):.2f} % of the time in the median run."]


OTHERS = {
    "rounds": "of rounds that share no cell of the compatibility table with the base's", "own": "of no published round",
    "samples": "with other training samples", "divisions": "of the other division",
}  # fmt: skip


def comparison_notes(rankings: Sequence[Ranking]) -> list[str]:
    """How many entries of each ranking are of the base's benchmark, and why the others are not."""
    notes = []
    for ranking in rankings:
        others = [why_not_comparable(entry, ranking.base) for entry in ranking.entries if entry is not ranking.base]
        if not others:
            continue
        words = [reason.word for reasons in others for reason in reasons]
        counts = [f"{words.count(word)} {told}" for word, told in OTHERS.items() if word in words]
        same = f"{sum(not reasons for reasons in others)} of {units.counted(len(others), 'entry', 'entries')}"
        name = f"{application_name(ranking.application)}, {ranking.mode}"
        notes.append(f"{name}: the base can be compared with {same}{'; ' if counts else ''}{', '.join(counts)}.")
    return notes


def repeated(entries: Sequence[EntryRuns]) -> dict[tuple[str, str], EntryRuns]:
    """Entries made of the same runs as an earlier one: a map from their identity to the earlier one."""
    seen: dict[tuple[object, ...], EntryRuns] = {}
    earlier = {}
    for entry in entries:
        starts = tuple(sorted(run.start_unix_s for run in entry.runs if run.start_unix_s is not None))
        other = seen.setdefault((entry.key[0], starts), entry) if starts else entry
        if other is not entry:
            earlier[entry.identity] = other
    return earlier


def repeated_notes(entries: Sequence[EntryRuns]) -> list[str]:
    """The same in words."""
    return [
        f"{name} ({application_name(application)}) has the same runs as {other.name}."
        for (application, name), other in repeated(entries).items()
    ]
