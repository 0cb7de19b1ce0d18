"""The whole of an analysis: entries, rankings, and the rows of every table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.analysis.choose import find_entry, find_pairs, of_application
from hpcbench.analysis.compute_rows import ComputeRow, compute_rows
from hpcbench.analysis.convergence_rows import ConvergenceRow, ReferenceRow, convergence_rows, reference_rows
from hpcbench.analysis.entry_runs import EntryRuns, entries_of_runs
from hpcbench.analysis.findings import repeated
from hpcbench.analysis.machine_names import Labels, MachineOf, machine_of, unique_labels
from hpcbench.analysis.published_sets import set_of
from hpcbench.analysis.ranking import Ranking, rank
from hpcbench.analysis.staging_rows import StagingRow, staging_rows
from hpcbench.analysis.tier_rows import TierRow, tier_rows
from hpcbench.analysis.variation_rows import VariationRow, variation_rows
from hpcbench.batch.machine import Machine
from hpcbench.mlperf.run_record import RunRecord


@dataclass(frozen=True)
class Question:
    """What a user asks for."""

    base: str | None = None
    """Name of the entry that all are compared with; unset: the best of each ranking."""
    against: str | None = None
    """Name of the entry to which the waterfall from the base is drawn."""
    application: str | None = None
    machine: Machine | None = None
    """The machine of your own runs, in bold on the map."""


@dataclass(frozen=True)
class Analysis:
    """What the page, the plots and the tables are made of."""

    entries: tuple[EntryRuns, ...]
    rankings: tuple[Ranking, ...]
    labels: Labels
    against: tuple[EntryRuns, ...]
    """Entries to which the waterfall from the base is drawn, where a user asks for it: at most one per ranking."""
    staging: list[StagingRow]
    convergence: list[ConvergenceRow]
    references: list[ReferenceRow]
    variation: list[VariationRow]
    compute: list[ComputeRow]
    tiers: list[TierRow]
    ran: list[tuple[str, str, int]]
    """Entries on machines with a file: name of the set, title, nodes."""
    machine: Machine | None

    @property
    def has_own_entries(self) -> bool:
        """Whether any entry is your own."""
        return any(entry.is_own for entry in self.entries)

    @property
    def runs(self) -> int:
        """Number of all runs."""
        return sum(len(entry.runs) for entry in self.entries)


def analyze(records: Sequence[RunRecord], machines: Sequence[Machine], question: Question) -> Analysis:
    """Analyse records. Raises ``InputError`` for an unknown name, or where there is nothing to compare."""
    where = machine_of(machines, question.machine)
    entries = of_application(entries_of_runs(records), question.application)
    rankings, against = rank_all(entries, where, question)
    applications = list(dict.fromkeys(entry.key[0] for entry in entries))
    shown = [machine for machine in machines if question.machine is None or machine.name != question.machine.name]
    shown = [question.machine, *shown] if question.machine is not None else shown
    tiers = tier_rows(shown, entries, where)
    return Analysis(
        entries=tuple(entries), rankings=tuple(rankings), labels=unique_labels(entries, where), against=tuple(against),
        staging=staging_rows(entries), convergence=convergence_rows(entries), references=reference_rows(applications),
        variation=variation_rows(entries, repeated(entries)), compute=compute_rows(entries, where),
        tiers=[row for row in tiers if row.application.casefold() in applications],
        ran=ran_on(entries, where), machine=question.machine,
    )  # fmt: skip


def rank_all(
    entries: Sequence[EntryRuns], where: MachineOf, question: Question
) -> tuple[list[Ranking], list[EntryRuns]]:
    """A ranking for each application and mode, with the bases that were asked for."""
    bases = find_entry("--base", question.base, entries, where) if question.base is not None else []
    against: list[EntryRuns] = []
    if question.against is not None:
        bases, against = find_pairs(question.base, question.against, entries, where)
    chosen = {base.key: base for base in bases}
    keys = sorted({entry.key for entry in entries}, key=lambda key: (key[0], key[1] == "throughput"))
    rankings = [rank(*key, [entry for entry in entries if entry.key == key], chosen.get(key)) for key in keys]
    return [ranking for ranking in rankings if ranking is not None], against


def ran_on(entries: Sequence[EntryRuns], where: MachineOf) -> list[tuple[str, str, int]]:
    """Entries on machines with a file: name of the set, title, nodes."""
    ran = []
    for entry in entries:
        problem, machine = set_of(entry.first), where(entry)
        if problem is not None and machine is not None and entry.first.nodes:
            ran.append((problem.name, machine.title, entry.first.nodes))
    return ran
