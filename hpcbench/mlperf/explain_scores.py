"""Why the official tool gives an entry no score, or another one than the rules."""

from __future__ import annotations

import math
from pathlib import Path

from hpcbench.mlperf.convergence_check import RUNS
from hpcbench.mlperf.entry import Entry, accepted, copies, failed, unrepeated
from hpcbench.mlperf.entry_rules import other_samples
from hpcbench.mlperf.official_score import OfficialScore
from hpcbench.mlperf.rulesets import WITHOUT, ruleset_of_round
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.units import counted


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
    missed = sum(run.status == "success" for run in lost)
    if len(lost) > missed:
        reasons.append(f"it counts {counted(len(lost) - missed, 'run')} whose run_stop is not a success")
    if missed:
        reasons.append(f"it counts {counted(missed, 'run')} without the target before run_stop")
    if copies(unrepeated(entry)):
        reasons.append("it counts copies of a log")
    if any(other_samples(run) for run in entry.runs):
        reasons.append("it does not see that the set is another")
    if any(of_several(entry, run) for run in entry.runs):
        reasons.append("of several lines run_start or run_stop it takes others than the first")
    rejected = sum(not log.accepted for log in entry.logs.values())
    if throughput and rejected:
        reasons.append(f"it leaves out {counted(rejected, 'log')} that it rejects, and the rules ask to prune them")
    counting = unrepeated(entry)
    repeated = [run for run in entry.runs if run not in counting and accepted(entry, run)]
    if repeated:
        reasons.append(f"it counts {counted(len(repeated), 'instance')} with the seed of another")
    if {Path(run.path).name for run in entry.runs} != set(entry.logs):
        reasons.append("it counts files whose names have no number")
    if len({(run.application, run.global_batch_size, run.division) for run in entry.runs}) > 1:
        reasons.append("it does not see that the runs differ")
    return reasons


def of_several(entry: Entry, run: RunRecord) -> bool:
    """Whether the official tool measures a run between other lines than the first ``run_start`` and ``run_stop``."""
    log = entry.logs.get(Path(run.path).name)
    if log is None or log.start_ms is None or log.stop_ms is None or run.time_to_train_s is None:
        return False
    return not math.isclose(log.stop_ms - log.start_ms, run.time_to_train_s * 1e3, abs_tol=1.0)
