"""Group runs into entries of a submission, and choose those that count if there are more than the rules ask for.

Source: MLPerf training rules (of more runs than asked for, the median window is submitted) and HPC training rules 3.0
(time to train, throughput).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.mlperf.convergence_check import RUNS
from hpcbench.mlperf.run_window import median_window
from hpcbench.submission.submitted_runs import SubmittedRun
from staging.errors import InputError

Mode = Literal["strong", "weak"]
"""The folder of a score: time to train, or throughput."""
ALIKE = {
    "global_batch_size": "global batch", "accelerators": "number of accelerators",
    "optimizer": "optimizer", "recipe": "hyperparameters",
}  # fmt: skip
"""Columns of a record that all runs of an entry share."""
Period = tuple[float, float]


@dataclass(frozen=True)
class PlannedEntry:
    """The runs of one score, in order of their start."""

    benchmark: str
    mode: Mode
    nodes: int
    """Nodes of the whole system: those of a run, or of all instances that ran at the same time."""
    runs: tuple[SubmittedRun, ...]
    beyond: tuple[SubmittedRun, ...] = ()
    """Runs outside the median window."""
    pruned: tuple[SubmittedRun, ...] = ()
    """Instances without convergence, or with the seed of another."""

    @property
    def needed(self) -> int:
        """Runs that the rules ask for."""
        return RUNS[self.benchmark]

    @property
    def first(self) -> SubmittedRun:
        """The first run, for what all runs have in common."""
        return self.runs[0]


def plan_entries(strong: Sequence[SubmittedRun], weak: Sequence[SubmittedRun]) -> list[PlannedEntry]:
    """The entries of runs for time to train and of instances for throughput, a group for each benchmark and size.

    Raises ``InputError`` if runs of a group are not alike, or if the runs are of several rulesets or divisions.
    """
    both = {run.folder.path.resolve() for run in strong} & {run.folder.path.resolve() for run in weak}
    if both:
        raise InputError(f"{min(both)} is given for time to train and for throughput; a run counts for one of them")
    rulesets = {run.summary.ruleset: run for run in (*strong, *weak)}
    if len(rulesets) > 1:
        told = ", ".join(f"{ruleset} ({run.folder.path})" for ruleset, run in sorted(rulesets.items()))
        raise InputError(f"the runs follow different rules: {told}; give those of one round")
    divisions = {run.record.division: run for run in (*strong, *weak)}
    if len(divisions) > 1:
        told = ", ".join(f"{division} ({run.folder.path})" for division, run in divisions.items())
        raise InputError(f"the runs are of two divisions: {told}; package each by itself")
    entries: list[PlannedEntry] = []
    modes: tuple[tuple[Mode, Sequence[SubmittedRun]], ...] = (("strong", strong), ("weak", weak))
    for mode, runs in modes:
        groups: dict[tuple[str, int], list[SubmittedRun]] = {}
        for run in sorted(runs, key=lambda run: run.record.start_unix_s or 0.0):
            groups.setdefault((run.benchmark, run.nodes), []).append(run)
        for (benchmark, nodes), group in groups.items():
            check_alike(group)
            if mode == "weak":
                entries.append(throughput_entry(benchmark, nodes, group))
                continue
            chosen = counting_runs(group, RUNS[benchmark])
            beyond = tuple(run for run in group if run not in chosen)
            entries.append(PlannedEntry(benchmark, mode, nodes, tuple(chosen), beyond))
    return entries


def throughput_entry(benchmark: str, nodes: int, group: Sequence[SubmittedRun]) -> PlannedEntry:
    """The entry of instances; those that did not converge, or that have the seed of an earlier one, are pruned."""
    run_by_seed: dict[int, SubmittedRun] = {}
    for run in group:
        if seconds(run) < math.inf:
            run_by_seed.setdefault(run.summary.seed, run)
    counted = tuple(run_by_seed.values()) or tuple(group)
    pruned = tuple(run for run in group if run not in counted)
    return PlannedEntry(benchmark, "weak", nodes * most_at_once(group), counted, pruned=pruned)


def check_alike(runs: Sequence[SubmittedRun]) -> None:
    """Raise ``InputError`` if runs differ in something that all runs of a score must share."""
    for column, words in ALIKE.items():
        values = Counter(str(getattr(run.record, column)) for run in runs)
        if len(values) > 1:
            (usual, _), *_ = values.most_common()
            odd = next(run for run in runs if str(getattr(run.record, column)) != usual)
            told = "" if column == "recipe" else f": {getattr(odd.record, column)} in {odd.folder.path}, else {usual}"
            told = told or f": {differing(odd, next(run for run in runs if str(run.record.recipe) == usual))}"
            raise InputError(f"runs of one entry differ in {words}{told}; give those of one entry")


def differing(one: SubmittedRun, other: SubmittedRun) -> str:
    """The first hyperparameter in which two runs differ."""
    keys = sorted({*one.record.recipe, *other.record.recipe})
    key = next(key for key in keys if one.record.recipe.get(key) != other.record.recipe.get(key))
    return (
        f"{key} {one.record.recipe.get(key)} in {one.folder.path}, {other.record.recipe.get(key)} in "
        f"{other.folder.path}"
    )


def counting_runs(runs: Sequence[SubmittedRun], needed: int) -> list[SubmittedRun]:
    """The runs that count: all if there are no more than needed, else the median window."""
    first = median_window([seconds(run) for run in runs], needed) if len(runs) > needed else 0
    return list(runs[first : first + needed])


def seconds(run: SubmittedRun) -> float:
    """Time to train; infinite without convergence."""
    time_s = run.record.time_to_train_s
    return time_s if run.converged and time_s is not None else math.inf


def most_at_once(runs: Sequence[SubmittedRun]) -> int:
    """The largest number of instances that were on the clock at one time."""
    clocks: list[Period] = [
        (run.record.start_unix_s, run.record.start_unix_s + (run.record.time_to_train_s or 0.0))
        for run in runs
        if run.record.start_unix_s is not None
    ]
    changes = sorted([(begin, 1) for begin, _ in clocks] + [(end, -1) for _, end in clocks])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return max(most, 1)
