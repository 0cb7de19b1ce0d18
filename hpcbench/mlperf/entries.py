"""Entries of a round: the runs of one folder, and their score by the rules, or why they have none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.mlperf.convergence_check import RUNS, ConvergenceTest, check_convergence, has_points, olympic
from hpcbench.mlperf.run_record import FEWEST_ALIKE, RunRecord
from hpcbench.results.units import counted

RULESETS = {"v1.0": "1.0.0", "v2.0": "2.0.0", "v3.0": "3.0.0"}
"""The rules of each round; v0.7 has none that the official checkers know."""
MINUTE_S = 60.0


@dataclass
class Entry:
    """Runs that make one score together."""

    runs: list[RunRecord]
    """Those that count: without pruned ones."""
    pruned: int = 0
    score_min: float | None = None
    """Time to train: olympic mean in minutes, normalised. Throughput: minutes from the first start to the last stop."""
    models_per_min: float | None = None
    """Of throughput alone: runs over these minutes."""
    convergence: ConvergenceTest | None = None
    """Of the closed division, where the rules have reference points."""
    faults: list[str] = field(default_factory=list)
    """Rules that the entry does not keep."""
    notes: list[str] = field(default_factory=list)

    @property
    def first(self) -> RunRecord:
        """A run that could be read, for what all have in common."""
        return next((run for run in self.runs if run.start_unix_s is not None), self.runs[0])


def entries_of(records: Iterable[RunRecord]) -> list[Entry]:
    """The entries of published runs, a folder each, scored."""
    folders: dict[Path, list[RunRecord]] = {}
    for record in records:
        if record.origin == "published":
            folder = Path(record.path).parent
            folders.setdefault(folder.parent if record.pruned else folder, []).append(record)
    made = []
    for runs in folders.values():
        kept = [run for run in runs if not run.pruned]
        if kept:
            entry = Entry(kept, len(runs) - len(kept))
            score(entry)
            made.append(entry)
    return made


def score(entry: Entry) -> None:
    """Score an entry, and note which rules it does not keep."""
    read = [run for run in entry.runs if run.start_unix_s is not None] or entry.runs
    alike = {(run.application, run.global_batch_size, run.division) for run in read}
    if len(alike) > 1:
        entry.faults.append("the runs differ in application, batch or division")
        return
    needed = RUNS.get(entry.first.application or "")
    if needed is not None:
        check_count(entry, needed)
    check_seeds(entry)
    compare_convergence(entry)
    if entry.first.mode == "throughput":
        score_throughput(entry)
    else:
        score_time(entry)


def check_count(entry: Entry, needed: int) -> None:
    """So many runs make a time to train; throughput needs at least as many."""
    found = len(entry.runs)
    if entry.first.mode == "throughput" and found < needed:
        entry.faults.append(f"{counted(found, 'instance')}, fewer than {needed}")
    if entry.first.mode != "throughput" and found != needed:
        entry.faults.append(f"{counted(found, 'run')} where the rules ask for {needed}")


def check_seeds(entry: Entry) -> None:
    """Runs of one seed, or of one trajectory, are one run."""
    seeds = Counter(run.seed for run in entry.runs if run.seed is not None)
    twice = sum(count - 1 for count in seeds.values())
    if twice and entry.first.mode == "throughput":
        entry.faults.append(f"{counted(twice, 'instance')} with the seed of another, to be pruned")
    elif twice and entry.first.division == "closed":
        entry.faults.append(f"{counted(twice, 'run')} with the seed of another")
    trajectories = Counter(tuple(run.qualities) for run in entry.runs if len(run.qualities) >= FEWEST_ALIKE)
    same = max(trajectories.values(), default=1)
    if same > 1:
        entry.notes.append(f"{same} of {len(entry.runs)} runs have one trajectory")


def compare_convergence(entry: Entry) -> None:
    """The test against the reference convergence points, for the closed division."""
    run, ruleset = entry.first, RULESETS.get(entry.first.round or "")
    if ruleset is None or run.application is None or not has_points(run.application, ruleset):
        return
    if run.division != "closed" or run.global_batch_size is None or len(entry.runs) < 3:
        return
    epochs = [run.epochs if run.status == "success" else None for run in entry.runs]
    entry.convergence = check_convergence(run.application, ruleset, run.global_batch_size, epochs)
    if not entry.convergence.passed:
        entry.faults.append(f"convergence: {entry.convergence.words}")


def failed(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs without a time that counts."""
    return [run for run in runs if run.status != "success" or run.time_to_train_s is None]


def score_time(entry: Entry) -> None:
    """Time to train: the mean without the fastest and the slowest, which one run that failed may be."""
    lost = failed(entry.runs)
    if len(entry.runs) < 3:
        entry.faults.append("too few runs for an olympic mean")
        return
    if len(lost) > 1:
        entry.faults.append(f"{len(lost)} runs did not converge; one may")
        return
    times = [math.inf if run in lost or run.time_to_train_s is None else run.time_to_train_s for run in entry.runs]
    factor = entry.convergence.factor if entry.convergence is not None and entry.convergence.passed else 1.0
    entry.score_min = olympic(times) * factor / MINUTE_S
    if lost:
        entry.notes.append("one run did not converge and counts as the slowest")
    if factor > 1:
        entry.notes.append(f"normalised by {factor:.4f}: epochs below the reference, within its limits")


def score_throughput(entry: Entry) -> None:
    """Throughput: all instances from the first start to the last stop."""
    lost = failed(entry.runs)
    if lost:
        entry.faults.append(f"{counted(len(lost), 'instance')} without convergence, to be pruned")
        return
    starts = [run.start_unix_s for run in entry.runs if run.start_unix_s is not None]
    stops = [run.start_unix_s + run.time_to_train_s for run in entry.runs
             if run.start_unix_s is not None and run.time_to_train_s is not None]  # fmt: skip
    entry.score_min = (max(stops) - min(starts)) / MINUTE_S
    entry.models_per_min = len(entry.runs) / entry.score_min
    if len({run.accelerators for run in entry.runs}) > 1:
        entry.faults.append("instances of different sizes")
