"""Entries of a round: the runs of one folder with their scores, by the rules and by the official tool."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.mlperf.convergence_check import (
    RUNS,
    SAMPLES_AS_EPOCHS,
    check_convergence,
    has_points,
    olympic,
)
from hpcbench.mlperf.entry import (
    UNCONVERGED,
    Entry,
    copies,
    distinct_seeds,
    failed,
    reasons_lost,
    repeated_seeds,
    unrepeated,
    why_lost,
)
from hpcbench.mlperf.entry_rules import check_entry, other_samples, wrong_ends
from hpcbench.mlperf.explain_scores import explain
from hpcbench.mlperf.find_logs import IN_TREES, LOG
from hpcbench.mlperf.log_cache import LogCache
from hpcbench.mlperf.official_folders import Folder, official_folders
from hpcbench.mlperf.read_log import claims_epochs
from hpcbench.mlperf.run_record import FEWEST_ALIKE, RunRecord
from hpcbench.mlperf.run_window import median_window
from hpcbench.results.units import counted

MINUTE_S = 60.0


def entries_of(
    records: Iterable[RunRecord], official: Mapping[Path, Folder] | None = None, cache: LogCache | None = None
) -> list[Entry]:
    """Return the scored entries of runs in trees, one per folder; ``official`` holds what the official tools say.

    Without ``official``, the logs are read once more for these tools, or taken from ``cache``.
    """
    folders: dict[Path, list[RunRecord]] = {}
    for record in records:
        if record.origin in IN_TREES:
            folder = Path(record.path).absolute().parent  # a relative path may lack the folders above it
            folders.setdefault(folder.parent if record.pruned else folder, []).append(record)
    made: dict[Path, Entry] = {}
    for folder, runs in folders.items():
        unpruned = sorted((run for run in runs if not run.pruned), key=number_of)
        if unpruned:
            made[folder] = Entry(unpruned, len(runs) - len(unpruned))
    if official is None:
        ruled = {folder: entry.ruleset for folder, entry in made.items()}
        known = {folder: ruleset for folder, ruleset in ruled.items() if ruleset is not None}
        official = official_folders(known, cache)
    official = {folder.absolute(): found for folder, found in official.items()}
    for folder, entry in made.items():
        if folder in official:
            entry.official, entry.logs = official[folder]
            given = {Path(run.path).name for run in entry.runs}
            if any(LOG.fullmatch(name) and name not in given for name in entry.logs):
                entry.official = None
                entry.notes.append(f"official: {len(given)} of {len(entry.logs)} logs of the folder were given")
        score(entry, cache)
        explain(entry)
    check_beside(made)
    note_crashes(made)
    return list(made.values())


def note_crashes(entries: Mapping[Path, Entry]) -> None:
    """Say of entries with an official score that the command crashes on another entry of the organization.

    That ends it for all of them.
    """
    crashed: dict[Path, Path] = {}
    for folder, entry in entries.items():
        if entry.official is not None and entry.official.crash is not None:
            crashed.setdefault(folder.parents[2], folder)
    for folder, entry in entries.items():
        other = crashed.get(folder.parents[2])
        if other is not None and entry.official is not None and entry.official.minutes is not None:
            where = "/".join(other.parts[-3:])
            entry.notes.append(f"official: of this folder alone; the command crashes on {where} and scores none")


def check_beside(entries: Mapping[Path, Entry]) -> None:
    """A throughput comes with a time to train that counts: add a fault where those given have none by any rule."""
    for folder, entry in entries.items():
        beside = [other for path, other in entries.items() if path.name == folder.name
                  and path.parents[2] == folder.parents[2] and other.first.mode != "throughput"]  # fmt: skip
        if entry.first.mode != "throughput" or not beside:
            continue
        if all(other.score_min is None and other.withheld_min is None for other in beside):
            entry.faults.append(f"alone: no time to train of {folder.name} by the organization has a score")


def number_of(run: RunRecord) -> int:
    """The number in the name of a log."""
    digits = re.sub(r"\D", "", Path(run.path).name)[:18]
    return int(digits) if digits else 0


def score(entry: Entry, cache: LogCache | None = None) -> None:
    """Score an entry, and note which rules it breaks; ``cache`` may hold reference points."""
    read = [run for run in entry.runs if run.start_unix_s is not None] or entry.runs
    alike = {(run.application, run.global_batch_size, run.division) for run in read}
    if len(alike) > 1:
        entry.faults.append("mixed: the runs differ in application, batch or division")
        return
    needed = RUNS.get(entry.first.application or "")
    throughput = entry.first.mode == "throughput"
    counting = distinct_seeds(entry) if throughput else window(entry, needed)
    if needed is not None:
        check_count(entry, needed, len(counting) if throughput else len(entry.runs))
    check_seeds(entry)
    check_copies(entry)
    compare_convergence(entry, counting, cache)
    if throughput:
        score_throughput(entry, counting)
    else:
        score_time(entry, counting)
    if not may_have_score(entry, counting, needed):
        entry.withheld_min, entry.score_min, entry.models_per_min = entry.score_min, None, None
    findings = check_entry(entry.runs, entry.pruned)
    entry.faults += findings.faults
    entry.notes += findings.notes


def may_have_score(entry: Entry, counting: Sequence[RunRecord], needed: int | None) -> bool:
    """Whether the rules give a score: to enough runs that pass the convergence test and, if closed, share no seed.

    Copies of a log are no runs, and a time is none if the lines between its ends contradict it, or if a closed run has
    another set than the published one. Instances that share a seed are left out of ``counting``. v0.7 has no rule on
    seeds.
    """
    if needed is not None and len(counting) < needed:
        return False
    if copies(unrepeated(entry)) or any(wrong_ends(run) or other_samples(run) for run in counting):
        return False
    alike = entry.first.mode != "throughput" and repeated_seeds(entry) > 0
    if alike and entry.first.division == "closed" and entry.ruleset is not None:
        return False
    return entry.convergence is None or entry.convergence.passed


def window(entry: Entry, needed: int | None) -> list[RunRecord]:
    """The runs that count: if there are more than the rules ask for, those of the window with the median score."""
    if needed is None or len(entry.runs) <= needed:
        return entry.runs
    lost = failed(entry, entry.runs)
    times = [math.inf if run in lost or run.time_to_train_s is None else run.time_to_train_s for run in entry.runs]
    first = median_window(times, needed)
    names = [Path(run.path).stem for run in entry.runs[first : first + needed]]
    entry.notes.append(f"window: {names[0]} to {names[-1]} have the median of the scores of {needed} runs in a row")
    return entry.runs[first : first + needed]


def check_count(entry: Entry, needed: int, run_count: int) -> None:
    """Check the number of runs: time to train takes exactly ``needed``, throughput at least as many."""
    if entry.first.mode == "throughput" and run_count < needed:
        entry.faults.append(f"count: {counted(run_count, 'instance')}, fewer than {needed}")
    if entry.first.mode != "throughput" and run_count != needed:
        entry.faults.append(f"count: {counted(run_count, 'run')} where the rules ask for {needed}")


def check_seeds(entry: Entry) -> None:
    """Check the seeds: runs with one seed, or one trajectory, are one run."""
    twice = repeated_seeds(entry)
    if twice and entry.first.mode == "throughput":
        entry.faults.append(f"seeds: {counted(twice, 'instance')} with the seed of another, to be pruned")
    elif twice and entry.first.division == "closed":
        entry.faults.append(f"seeds: {counted(twice, 'run')} with the seed of another")
    trajectories = Counter(tuple(run.qualities) for run in entry.runs if len(run.qualities) >= FEWEST_ALIKE)
    same = max(trajectories.values(), default=1)
    if same > 1:
        entry.notes.append(f"trajectory: {same} of {len(entry.runs)} runs have the same")


def check_copies(entry: Entry) -> None:
    """Check that each log is of a run of its own, whatever its seed says."""
    if number := copies(unrepeated(entry)):
        what = "with the start, the times and the evaluations of another"
        entry.faults.append(f"copies: {counted(number, 'log')} {what}: one run")


def compare_convergence(entry: Entry, counting: Sequence[RunRecord], cache: LogCache | None = None) -> None:
    """Test against the reference convergence points, in the closed division."""
    run, ruleset = entry.first, entry.ruleset
    if ruleset is None or run.application is None or not has_points(run.application, ruleset):
        return
    if run.division != "closed" or run.global_batch_size is None or len(counting) < 3:
        return
    epochs = [epochs_to_test(run) if run.converged else None for run in counting]
    batch = run.global_batch_size
    test = check_convergence(run.application, ruleset, batch, epochs, log_cache=cache)
    # A throughput is tested, but its time is not normalised.
    entry.convergence = replace(test, factor=1.0) if run.mode == "throughput" else test
    if not entry.convergence.passed:
        entry.faults.append(f"convergence: {entry.convergence.words}")


def epochs_to_test(run: RunRecord) -> float | None:
    """Epochs of a run as the reference convergence points count them: those of OpenFold in samples.

    A log that claims more epochs than it has begun counts with those that it has.
    """
    if claims_epochs(run):
        return float(run.epochs_begun or 0)
    if run.application != SAMPLES_AS_EPOCHS or run.epochs is None or run.train_samples is None:
        return run.epochs
    return run.epochs * run.train_samples


def score_time(entry: Entry, counting: Sequence[RunRecord]) -> None:
    """Score time to train: the mean without the fastest and the slowest run; one failed run may be the slowest."""
    lost = failed(entry, counting)
    if len(counting) < 3:
        entry.faults.append("count: too few runs for an olympic mean")
        return
    if len(lost) > 1:
        reasons = reasons_lost(entry, lost)
        what = f"do not count ({reasons})" if reasons else UNCONVERGED
        entry.faults.append(f"status: {len(lost)} runs {what}; one may")
        return
    times = [math.inf if run in lost or run.time_to_train_s is None else run.time_to_train_s for run in counting]
    factor = entry.convergence.factor if entry.convergence is not None and entry.convergence.passed else 1.0
    entry.score_min = olympic(times) * factor / MINUTE_S
    if lost:
        why = why_lost(entry, lost[0])
        what = f"{why} and counts as the slowest" if why == UNCONVERGED else f"counts as the slowest: {why}"
        entry.notes.append(f"status: {Path(lost[0].path).stem} {what}")
    if factor > 1:
        entry.notes.append(f"convergence: normalised by {factor:.4f}: below the reference, within its limits")


def score_throughput(entry: Entry, counting: Sequence[RunRecord]) -> None:
    """Score throughput: the instances that count, from the first start to the last stop; none may have failed."""
    lost = failed(entry, entry.runs)
    if lost:
        reasons = reasons_lost(entry, lost)
        what = f"not to count ({reasons})" if reasons else "without convergence"
        entry.faults.append(f"status: {counted(len(lost), 'instance')} {what}, to be pruned")
        return
    starts = [run.start_unix_s for run in counting if run.start_unix_s is not None]
    stops = [run.start_unix_s + run.time_to_train_s for run in counting
             if run.start_unix_s is not None and run.time_to_train_s is not None]  # fmt: skip
    entry.score_min = (max(stops) - min(starts)) / MINUTE_S
    entry.models_per_min = len(counting) / entry.score_min
