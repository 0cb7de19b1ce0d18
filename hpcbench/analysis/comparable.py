"""What may be compared: rounds differ in rules, targets and data.

Source: the compatibility table of MLCommons (mlcommons/policies, MLPerf_Compatibility_Table.adoc, commit c195f80 of
2026-04-28): DeepCAM of v0.7 and v1.0 share a cell; CosmoFlow and Open Catalyst have a cell per round. The table ends
at v2.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.published_sets import same_samples

SHARED = {("deepcam", "v0.7"): "v0.7 and v1.0", ("deepcam", "v1.0"): "v0.7 and v1.0"}
LAST_IN_TABLE = "v2.0"


@dataclass(frozen=True)
class Difference:
    """Why two entries are not results of one benchmark."""

    word: str
    """``rounds``, ``own``, ``samples`` or ``divisions``."""
    words: str


def comparison_class(entry: EntryRuns) -> str | None:
    """The rounds whose results of this application compare with the entry's; ``None`` for an entry of no round."""
    run = entry.first
    if entry.is_own or run.round is None:
        return None
    return SHARED.get((run.application or "", run.round), run.round)


def why_not_comparable(one: EntryRuns, other: EntryRuns) -> list[Difference]:
    """Each reason why two entries of an application are not results of one benchmark; empty where they are."""
    reasons = []
    a, b = one.first, other.first
    first, second = comparison_class(one), comparison_class(other)
    if first is not None and second is not None and first != second:
        late = max(a.round or "", b.round or "") > LAST_IN_TABLE
        table = f"the compatibility table, which ends at {LAST_IN_TABLE}" if late else "the compatibility table"
        rounds = " and ".join(sorted((a.round or "", b.round or "")))
        reasons.append(Difference("rounds", f"rounds {rounds} share no cell of {table}"))
    if (first is None) != (second is None):
        reasons.append(Difference("own", "one is of no published round"))
    if a.train_samples and b.train_samples and not same_samples(a.train_samples, b.train_samples):
        samples = " and ".join(f"{count:,}" for count in sorted((a.train_samples, b.train_samples)))
        reasons.append(Difference("samples", f"{samples} training samples"))
    if a.division and b.division and a.division != b.division:
        reasons.append(Difference("divisions", "divisions closed and open"))
    return reasons


def comparison_words(one: EntryRuns, other: EntryRuns, short: bool = False) -> str:
    """``yes``, or why not: where ``short``, one word for each reason, else each reason in full."""
    reasons = why_not_comparable(one, other)
    if not reasons:
        return "yes"
    return (
        f"no: {', '.join(reason.word for reason in reasons)}"
        if short
        else "; ".join(reason.words for reason in reasons)
    )
