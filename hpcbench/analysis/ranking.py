"""The ranking of an application's entries, and the decomposition of each against a base."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from hpcbench.analysis.comparable import comparison_words, why_not_comparable
from hpcbench.analysis.decomposition import TERMS, Decomposition, decompose, decompose_factors, factors
from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.published_sets import same_samples
from hpcbench.analysis.sheets import column, text
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED

MINUTE_S = 60.0


@dataclass(frozen=True)
class Ranking:
    """Entries of one application and mode in order of their score, the best first."""

    application: str
    mode: str
    entries: tuple[EntryRuns, ...]
    """Those with a score."""
    without: tuple[EntryRuns, ...]
    """Those without one."""
    base: EntryRuns
    against: tuple[Decomposition, ...]
    """Each other entry against the base, in the order of the ranking."""

    @property
    def slug(self) -> str:
        """Its part of file names, whatever a log calls its application."""
        return re.sub(r"[^A-Za-z0-9]+", "-", f"{self.application} {self.mode}").strip("-")


def rank(application: str, mode: str, entries: Sequence[EntryRuns], base: EntryRuns | None = None) -> Ranking | None:
    """The ranking against ``base``, else against the best on the usual set; ``None`` where no entry has a score."""
    scored = sorted((entry for entry in entries if entry.score_s is not None), key=lambda entry: entry.score_s or 0.0)
    if not scored:
        return None
    base = base or best_on_the_usual_set(scored)
    against = tuple(decompose(entry, base) for entry in scored if entry is not base)
    return Ranking(
        application, mode, tuple(scored), tuple(entry for entry in entries if entry.score_s is None), base, against
    )


def best_on_the_usual_set(scored: Sequence[EntryRuns]) -> EntryRuns:
    """The first entry of those with the number of training samples that most have.

    A run of seconds on a small set, beside published entries, is not what these are to be measured against.
    """
    samples = [entry.first.train_samples for entry in scored]
    alike = [sum(same_samples(one, other) for other in samples) for one in samples]
    return scored[alike.index(max(alike))]


@dataclass(frozen=True)
class RankingRow:
    """A line of a ranking."""

    place: int = column("", "by time to train; of throughput by models per minute", units.integer)
    entry: str = column("entry", "round, submitter and system; own: system, nodes and batch", text)
    source: str = column("of", "round, division and submitter; own or log where it is of no round", text, page=False)
    division: str | None = column("division", "closed or open", text)
    accelerators: int | None = column(
        "acc.", "accelerators of an instance; a node without any counts as one", units.integer
    )
    batch: int | None = column("batch", "global batch, samples", units.integer)
    runs: int = column("runs", "runs, without pruned ones", units.integer)
    kept: int = column("kept", "runs that the means are over", units.integer)
    minutes: float = column("minutes", "mean time to train of the runs kept; of throughput of an instance")
    models_per_min: float | None = column(
        "models/min", "of throughput: instances over the span of all", units.significant
    )
    epochs: float | None = column("epochs", "mean over the runs kept")
    epoch_s: float | None = column("s/epoch", "training and evaluation over epochs, without what the first took beyond")
    rate: float | None = column("samples/s/acc.", "training samples/s per accelerator")
    staging_share: float | None = column("staging", "staging within the clock over the time to train", units.percent)
    compares: str = column("same benchmark", "as the base: yes, or in what they differ", text)
    differences: str = column("differences", "from the base, in full", text, page=False)
    verified: str = column("verified", "of own ones: not verified", text, page=False)


def ranking_rows(ranking: Ranking) -> list[RankingRow]:
    """The lines of a ranking."""
    return [ranking_row(place, entry, ranking.base) for place, entry in enumerate(ranking.entries, 1)]


def ranking_row(place: int, entry: EntryRuns, base: EntryRuns) -> RankingRow:
    """The line of an entry that has a score."""
    seconds, run = entry.seconds, entry.first
    assert seconds is not None
    staged = any(kept_run.staging_s is not None for kept_run in entry.kept)
    return RankingRow(
        place=place, entry=entry.name, source=entry.source, division=run.division, accelerators=run.accelerators,
        batch=run.global_batch_size, runs=len(entry.runs), kept=len(entry.kept), minutes=seconds.total / MINUTE_S,
        models_per_min=MINUTE_S / entry.score_s if entry.throughput and entry.score_s else None, epochs=entry.epochs,
        epoch_s=seconds.epochs_total / entry.epochs if entry.epochs else None, rate=entry.samples_per_s_per_accelerator,
        staging_share=seconds.staging / seconds.total if staged else None,
        compares="base" if entry is base else comparison_words(entry, base, short=True),
        differences="; ".join(difference.words for difference in why_not_comparable(entry, base)),
        verified=NOT_VERIFIED if entry.is_own else "",
    )  # fmt: skip


@dataclass(frozen=True)
class PairRow:
    """A pair: the ratio of times, and the factor of each term."""

    application: str = column("application", "of both", text, page=False)
    mode: str = column("mode", "time to train or throughput", text, page=False)
    a: str = column("entry", "the entry a", text)
    b: str = column("base", "the entry b", text, page=False)
    ratio: float = column("time", "T_a / T_b: above 1, a takes longer", units.significant)
    epochs: float | None = column("epochs", TERMS[0].meaning)
    samples: float | None = column("samples", TERMS[1].meaning)
    accelerators: float | None = column("number of acc.", TERMS[2].meaning)
    rate: float | None = column("rate per acc.", TERMS[3].meaning)
    evaluation: float | None = column("evaluation", TERMS[4].meaning)
    first: float | None = column("first epoch", TERMS[5].meaning)
    staging: float | None = column("staging", TERMS[6].meaning)
    rest: float | None = column("rest", TERMS[7].meaning)
    spread: float | None = column("spread", TERMS[8].meaning)
    instances: float | None = column("instances", TERMS[9].meaning)
    ln_ratio: float | None = column("ln", "the logarithm of the ratio, the sum of all terms", page=False)
    largest: str = column("most by", "the term whose logarithm is largest", text)
    compares: str = column("compares", "yes, or why it does not", text, page=False)
    verified: str = column("verified", "where one is one's own: not verified", text, page=False)


def pair_row(pair: Decomposition, ranking: Ranking) -> PairRow:
    """The row of a pair; the product of its factors is the ratio."""
    by_term = {name: math.exp(value) for name, value in pair.terms.items()}
    return PairRow(
        application=ranking.application, mode=ranking.mode, a=pair.a.name, b=pair.b.name, ratio=pair.ratio,
        **{term.name: by_term.get(term.name) for term in TERMS}, ln_ratio=pair.total, largest=pair.largest.label,
        compares=comparison_words(pair.a, pair.b), verified=NOT_VERIFIED if pair.a.is_own or pair.b.is_own else "",
    )  # fmt: skip


def every_pair(ranking: Ranking) -> list[PairRow]:
    """All ordered pairs."""
    known = [(entry, factors(entry)) for entry in ranking.entries]
    return [pair_row(decompose_factors(a, b, of_a, of_b), ranking) for (a, of_a), (b, of_b) in permutations(known, 2)]
