"""Entries of a round: the runs of one folder with their scores, by the rules and by the official tool."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcbench.mlperf.convergence_check import (
    RUNS,
    SAMPLES_AS_EPOCHS,
    ConvergenceTest,
    check_convergence,
    has_points,
    olympic,
)
from hpcbench.mlperf.entry_rules import check_entry
from hpcbench.mlperf.find_logs import IN_TREES, LOG
from hpcbench.mlperf.log_cache import LogCache
from hpcbench.mlperf.official_folders import Folder, official_folders
from hpcbench.mlperf.official_log import OfficialLog
from hpcbench.mlperf.official_score import OfficialScore
from hpcbench.mlperf.rulesets import NEWEST, WITHOUT, ruleset_of_round
from hpcbench.mlperf.run_record import FEWEST_ALIKE, UNREAD, RunRecord
from hpcbench.mlperf.run_window import median_window
from hpcbench.results.units import counted

MINUTE_S = 60.0
UNCONVERGED = "did not converge"


@dataclass
class Entry:
    """Runs that make one score together."""

    runs: list[RunRecord]
    """The runs that count: all but the pruned ones."""
    pruned: int = 0
    score_min: float | None = None
    """Time to train: olympic mean in minutes, normalised. Throughput: minutes from the first start to the last stop."""
    withheld_min: float | None = None
    """The minutes that would be the score, of an entry to which the rules give none; see ``may_have_score``."""
    models_per_min: float | None = None
    """Throughput only: runs divided by these minutes."""
    official: OfficialScore | None = None
    """What ``mlperf_logging`` gives to the folder; ``None`` without its logs, or without rules for the round."""
    logs: dict[str, OfficialLog] = field(default_factory=dict)
    """What the official tools see of each log, by the name of its file."""
    convergence: ConvergenceTest | None = None
    """In the closed division, if the rules have reference points."""
    faults: list[str] = field(default_factory=list)
    """Rules that the entry breaks; each message starts with the rule's name."""
    notes: list[str] = field(default_factory=list)

    @property
    def first(self) -> RunRecord:
        """A readable run, for what all runs have in common."""
        return next((run for run in self.runs if run.start_unix_s is not None), self.runs[0])

    @property
    def ruleset(self) -> str | None:
        """The rules of the round; the newest if the round is unknown, ``None`` for v0.7."""
        return None if self.first.round == WITHOUT else ruleset_of_round(self.first.round) or NEWEST


def entries_of(
    records: Iterable[RunRecord], official: Mapping[Path, Folder] | None = None, cache: LogCache | None = None
) -> list[Entry]:
    """Return the scored entries of runs in trees, one per folder; ``official`` holds what the official tools say.

    Without ``official``, the logs are read once more for these tools, or taken from ``cache``.
    """
    folders: dict[Path, list[RunRecord]] = {}
    for record in records:
        if record.origin in IN_TREES:
            folder = Path(record.path).parent
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
    for folder, entry in made.items():
        if folder in official:
            entry.official, entry.logs = official[folder]
            given = {Path(run.path).name for run in entry.runs}
            if any(LOG.fullmatch(name) and name not in given for name in entry.logs):
                entry.official = None
                entry.notes.append(f"official: {len(given)} of {len(entry.logs)} logs of the folder were given")
        score(entry, cache)
        explain(entry)
    return list(made.values())


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

    Instances that share one are left out of ``counting``. v0.7 has no rule on seeds.
    """
    if needed is not None and len(counting) < needed:
        return False
    alike = entry.first.mode != "throughput" and repeated_seeds(entry) > 0
    if alike and entry.first.division == "closed" and entry.ruleset is not None:
        return False
    return entry.convergence is None or entry.convergence.passed


def distinct_seeds(entry: Entry) -> list[RunRecord]:
    """The instances without those that have the seed of another; of each seed the first one that did not fail."""
    lost = {id(run) for run in failed(entry, entry.runs)}
    kept: dict[object, RunRecord] = {}
    for run in sorted(entry.runs, key=lambda run: id(run) in lost):
        kept.setdefault(("no seed", id(run)) if run.seed is None else run.seed, run)
    chosen = {id(run) for run in kept.values()}
    return [run for run in entry.runs if id(run) in chosen]


def repeated_seeds(entry: Entry) -> int:
    """The number of runs with the seed of another."""
    seeds = Counter(run.seed for run in entry.runs if run.seed is not None)
    return sum(count - 1 for count in seeds.values())


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


def compare_convergence(entry: Entry, counting: Sequence[RunRecord], cache: LogCache | None = None) -> None:
    """Test against the reference convergence points, in the closed division."""
    run, ruleset = entry.first, entry.ruleset
    if ruleset is None or run.application is None or not has_points(run.application, ruleset):
        return
    if run.division != "closed" or run.global_batch_size is None or len(counting) < 3:
        return
    epochs = [epochs_as_logged(run) if run.status == "success" else None for run in counting]
    batch = run.global_batch_size
    test = check_convergence(run.application, ruleset, batch, epochs, log_cache=cache)
    # A throughput is tested, but its time is not normalised.
    entry.convergence = replace(test, factor=1.0) if run.mode == "throughput" else test
    if not entry.convergence.passed:
        entry.faults.append(f"convergence: {entry.convergence.words}")


def epochs_as_logged(run: RunRecord) -> float | None:
    """Epochs of a run as the reference convergence points count them: those of OpenFold in samples."""
    if run.application != SAMPLES_AS_EPOCHS or run.epochs is None or run.train_samples is None:
        return run.epochs
    return run.epochs * run.train_samples


def failed(entry: Entry, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs without a time that counts: those without success, and those whose log the official checker rejects."""
    return [run for run in runs if run.status != "success" or run.time_to_train_s is None or not accepted(entry, run)]


def accepted(entry: Entry, run: RunRecord) -> bool:
    """Whether the official checker accepts the log of a run; true if it was not asked."""
    log = entry.logs.get(Path(run.path).name)
    return log is None or (log.accepted and log.crash is None)


def why_lost(entry: Entry, run: RunRecord) -> str:
    """Why a run of ``failed`` has no time that counts."""
    log = entry.logs.get(Path(run.path).name)
    if run.reason is not None and run.reason.startswith(UNREAD):
        return "its log cannot be read"
    if run.status != "success" or run.time_to_train_s is None or log is None:
        return UNCONVERGED
    if log.crash is not None:
        return f"the official checker crashes on its log: {log.crash}"
    return UNCONVERGED if log.rejection is None else f"its log is rejected: {log.rejection}"


def reasons_lost(entry: Entry, lost: Sequence[RunRecord]) -> str | None:
    """The reason of each run of ``failed``; ``None`` if it is that none converged."""
    reasons = {Path(run.path).stem: why_lost(entry, run) for run in lost}
    if set(reasons.values()) == {UNCONVERGED}:
        return None
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())


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


def explain(entry: Entry) -> None:
    """Say why the official tool gives no score, or a score other than that by the rules."""
    official = entry.official
    if entry.ruleset is None:
        entry.notes.append(f"official: {WITHOUT} has no official HPC ruleset")
    if official is None:
        return
    if ruleset_of_round(entry.first.round) is None:
        entry.notes.append(
            f"ruleset: {entry.ruleset}, since no folder above the organization names a round that has one"
        )
    if official.crash is not None:
        entry.notes.append(f"official: the tool crashes, with all of the organization: {official.crash}")
    elif official.minutes is None:
        entry.notes.append(f"official: no score: {official.why}")
    elif entry.score_min is None or not math.isclose(official.minutes, entry.score_min, abs_tol=1e-6, rel_tol=1e-9):
        other = "the rules give no score" if entry.score_min is None else "the rules give another score"
        entry.notes.append(f"official: {'; '.join(differences(entry, official)) or other}")


def differences(entry: Entry, official: OfficialScore) -> list[str]:
    """List the reasons why an official score differs from that by the rules."""
    reasons = []
    needed = RUNS.get(entry.first.application or "")
    throughput = entry.first.mode == "throughput"
    if not throughput and needed is not None and len(entry.logs) > needed:
        reasons.append(f"it counts all {len(entry.logs)} logs")
    factor = entry.convergence.factor if entry.convergence is not None and entry.convergence.passed else 1.0
    if not throughput and not math.isclose(official.factor, factor, rel_tol=1e-9):
        there = f"multiplied by {official.factor:.6g} as scaling.json says" if official.factor != 1 else (
            "not yet normalised, since the package checker has not written scaling.json"
        )  # fmt: skip
        reasons.append(f"{there}; the rules give {factor:.6g}")
    lost = [run for run in failed(entry, entry.runs) if accepted(entry, run)]
    if lost:
        reasons.append(f"it counts {counted(len(lost), 'run')} whose run_stop is not a success")
    rejected = sum(not log.accepted for log in entry.logs.values())
    if throughput and rejected:
        reasons.append(f"it leaves out {counted(rejected, 'log')} that it rejects, and the rules ask to prune them")
    counting = distinct_seeds(entry) if throughput else entry.runs
    repeated = [run for run in entry.runs if run not in counting and accepted(entry, run)]
    if repeated:
        reasons.append(f"it counts {counted(len(repeated), 'instance')} with the seed of another")
    if {Path(run.path).name for run in entry.runs} != set(entry.logs):
        reasons.append("it counts files whose names have no number")
    if len({(run.application, run.global_batch_size, run.division) for run in entry.runs}) > 1:
        reasons.append("it does not see that the runs differ")
    return reasons
