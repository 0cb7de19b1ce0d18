"""Runs that together make one result: an entry of a round, or your own runs of one setup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from hpcbench.analysis.run_seconds import RunSeconds, lacks_epochs, mean_seconds, seconds_of
from hpcbench.mlperf.find_logs import IN_TREES
from hpcbench.mlperf.run_record import FEWEST_ALIKE, RunRecord
from hpcbench.results.units import counted

FEWEST_OLYMPIC = 3
THROUGHPUT = "throughput"


@dataclass(frozen=True)
class EntryRuns:
    """An entry and the means that its score is made of.

    All means are arithmetic and over the same runs, those of ``kept``, so that the parts add up to the time exactly.
    Where there are three runs or more, they leave out the fastest and the slowest by time to train, as the rules
    score; a single run that failed is the slowest. For throughput, all instances that converged count.
    """

    name: str
    runs: tuple[RunRecord, ...]
    """Without pruned ones, each once."""
    kept: tuple[RunRecord, ...] = ()
    """Runs that the means are over; none where the entry has no score."""
    seconds: RunSeconds | None = None
    epochs: float | None = None
    """Mean over ``kept``."""
    why_not: str | None = None
    """Why it has no means, in words."""
    notes: tuple[str, ...] = field(default=())

    @property
    def first(self) -> RunRecord:
        """A run from which to take what all have in common."""
        return self.kept[0] if self.kept else self.runs[0]

    @property
    def is_own(self) -> bool:
        """Whether it is of no published round, as are run folders, packaged submissions, and logs by themselves."""
        return self.first.origin != "published"

    @property
    def throughput(self) -> bool:
        """Whether its score is models over time."""
        return self.first.mode == THROUGHPUT

    @property
    def key(self) -> tuple[str, str]:
        """Application and mode: what is ranked together."""
        return self.first.application or "-", THROUGHPUT if self.throughput else "time to train"

    @property
    def identity(self) -> tuple[str, str]:
        """Application and name, which no other entry has."""
        return self.key[0], self.name

    @property
    def source(self) -> str:
        """Round, division and submitter of a published entry; ``own``, ``submission`` or ``log`` for your own."""
        first = self.first
        if self.is_own:
            return first.origin
        return " ".join(part for part in (first.round, first.division, first.organization) if part)

    @property
    def samples_per_s(self) -> float | None:
        """Training samples over the seconds of training, without what the first epoch took beyond the others."""
        if self.seconds is None or self.epochs is None or not self.first.train_samples:
            return None
        return self.first.train_samples * self.epochs / self.seconds.training

    @property
    def samples_per_s_per_accelerator(self) -> float | None:
        """The same per accelerator."""
        rate, count = self.samples_per_s, self.first.accelerators
        return rate / count if rate is not None and count else None

    @property
    def span_s(self) -> float | None:
        """For throughput: seconds from the first start to the last stop of the instances that converged."""
        ends = [(run.start_unix_s, run.start_unix_s + run.time_to_train_s) for run in self.kept
                if run.start_unix_s is not None and run.time_to_train_s is not None]  # fmt: skip
        return max(stop for _, stop in ends) - min(start for start, _ in ends) if ends else None

    @property
    def score_s(self) -> float | None:
        """Seconds to train a model; for throughput, the span over the number of models. Not normalised."""
        if self.seconds is None:
            return None
        if not self.throughput:
            return self.seconds.total
        return self.span_s / len(self.kept) if self.span_s else None


def entries_of_runs(records: Iterable[RunRecord]) -> list[EntryRuns]:
    """The entries of records, in their order; names are unique within an application."""
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for record in records:
        if not record.pruned:
            groups.setdefault(group_key(record), []).append(record)
    return unique_names(told_apart([entry_of(runs) for runs in groups.values()]))


def group_key(record: RunRecord) -> tuple[object, ...]:
    """What the runs of an entry have in common."""
    if record.origin in IN_TREES:
        who = (record.round, record.organization, record.system, record.application, record.mode)
        tree = None if record.origin == "published" else str(Path(record.path).parent)
        return record.origin, tree, record.division, *who
    setup = (record.application, record.system, record.nodes, record.accelerators, record.global_batch_size,
             record.precision, any("simulated" in note for note in record.notes))  # fmt: skip
    recipe = tuple(sorted((key, str(value)) for key, value in record.recipe.items()))
    folder = None if record.origin == "own" else str(Path(record.path).parent)
    return record.origin, folder, setup, recipe, record.train_samples


def entry_of(records: Sequence[RunRecord]) -> EntryRuns:
    """The entry that runs make, with means where it has them."""
    runs = each_once(records)
    first = next((run for run in runs if run.time_to_train_s is not None), runs[0])
    notes = [f"{counted(len(records) - len(runs), 'log')} given twice"] if len(runs) < len(records) else []
    alike = len(runs) - len(distinct(runs))
    if alike:
        notes.append(f"{alike} of {len(runs)} runs trained exactly as another")
    if first.origin != "published":
        notes += dict.fromkeys(note for run in runs for note in run.notes)
    if lacks_epochs(first):
        notes.append("no seconds of epochs in the shipped records; all but staging and evaluation counts as training")
    made = EntryRuns(name_of(first), tuple(runs), notes=tuple(notes))
    if unlike := differences(runs):
        return replace(made, why_not=f"its runs differ in {unlike}; give runs of one setup")
    good = [run for run in runs if run.converged and run.epochs and seconds_of(run) is not None]
    lost = len(runs) - len(good)
    if not good:
        why = next((run.reason for run in runs if run.reason), None) or "no run reached its target with epochs logged"
        return replace(made, why_not=why)
    if made.first.mode == THROUGHPUT or len(runs) < FEWEST_OLYMPIC:
        kept = good
    elif lost > 1:
        return replace(made, why_not=f"{lost} runs did not converge; one may")
    else:
        kept = sorted(good, key=lambda run: run.time_to_train_s or math.inf)[1 : None if lost else -1]
    seconds = mean_seconds([parts for run in kept if (parts := seconds_of(run)) is not None])
    return replace(made, kept=tuple(kept), seconds=seconds, epochs=fmean(run.epochs or 0.0 for run in kept))


def differences(runs: Sequence[RunRecord]) -> str:
    """In which batch or size runs differ that should make one result, with the values; empty if in neither."""
    values = {
        "global batch": sorted({run.global_batch_size for run in runs if run.global_batch_size is not None}),
        "accelerators": sorted({run.accelerators for run in runs if run.accelerators is not None}),
    }
    return " and ".join(
        f"{name} ({', '.join(f'{value:,}' for value in found)})" for name, found in values.items() if len(found) > 1
    )


def each_once(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Records without repeats of a log, which have the same start, time, seed and file name."""
    records_by_log: dict[tuple[object, ...], RunRecord] = {}
    for number, record in enumerate(records):
        same = (record.start_unix_s, record.time_to_train_s, record.seed, Path(record.path).name)
        records_by_log.setdefault(same if record.start_unix_s is not None else (number,), record)
    return list(records_by_log.values())


def distinct(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs without those that trained exactly like another."""
    runs_by_trajectory: dict[tuple[object, ...], RunRecord] = {}
    for number, run in enumerate(runs):
        runs_by_trajectory.setdefault(trajectory(run) or (number,), run)
    return list(runs_by_trajectory.values())


def trajectory(run: RunRecord) -> tuple[object, ...] | None:
    """What shows that two runs trained alike: all evaluations, else epochs and the last; ``None`` if it cannot."""
    if len(run.qualities) >= FEWEST_ALIKE:
        return tuple(run.qualities)
    return None if run.quality is None or run.epochs is None or run.qualities else (run.epochs, run.quality)


def name_of(run: RunRecord) -> str:
    """The name of an entry, as ``--base`` takes it."""
    if run.origin in IN_TREES:
        division = f" {run.division}" if run.division == "open" and not (run.system or "").endswith("open") else ""
        mode = f", {THROUGHPUT}" if run.mode == THROUGHPUT else ""
        where = run.round if run.origin == "published" else run.origin
        return " ".join(part for part in (where, run.organization, run.system) if part) + division + mode
    nodes = "" if run.nodes is None else f" {counted(run.nodes, 'node')}"
    batch = "" if run.global_batch_size is None else f" batch {run.global_batch_size}"
    return f"{run.origin} {run.system or 'system'}{nodes}{batch}"


def told_apart(entries: Sequence[EntryRuns]) -> list[EntryRuns]:
    """Entries with their precision in the name, where others of the same name have another."""
    precisions: dict[tuple[str, str], set[str | None]] = {}
    for entry in entries:
        precisions.setdefault(entry.identity, set()).add(entry.first.precision)
    return [
        replace(entry, name=f"{entry.name} {entry.first.precision}")
        if entry.first.precision and len(precisions[entry.identity]) > 1 else entry for entry in entries
    ]  # fmt: skip


def unique_names(entries: Sequence[EntryRuns]) -> list[EntryRuns]:
    """Entries with names that are unique within an application, numbered where they would not be."""
    seen: dict[tuple[str, str], int] = {}
    made = []
    for entry in entries:
        times = seen[entry.identity] = seen.get(entry.identity, 0) + 1
        made.append(entry if times == 1 else replace(entry, name=f"{entry.name} ({times})"))
    return made
