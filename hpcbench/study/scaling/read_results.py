"""Reads what the runs of a scaling study measured: a ``RepeatResult`` per repeat, a ``PointResult`` for all repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from hpcbench.batch.job_energy import JobEnergy
from hpcbench.phase_names import STEP_PHASES
from hpcbench.results.machine_use import no_counter
from hpcbench.results.rank_phases import rank_name
from hpcbench.results.summary import Summary
from hpcbench.study.folder import StudyFolder
from hpcbench.study.run_status import RunStatus, Status
from hpcbench.study.scaling.concurrency import (
    InstanceClock,
    Pruned,
    concurrent,
    last_start_s,
    read_clock,
    share_together,
    span_s,
)
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.energy import accounted_energies, energy, joules_per_sample
from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.run_figures import Figures, read_run
from hpcbench.study.scaling.run_matrix import PlannedRun, Point, groups, instances, points, variant_settings
from hpcbench.study.study_jobs import packing_jobs
from staging.errors import DataError

FAILED: tuple[Status, ...] = ("failed", "diverged")
"""Statuses of instances that left no figures, and that nobody continues."""


@dataclass(frozen=True)
class Known:
    """What is known about runs, by folder, so that nothing is read or queried twice."""

    summaries: Mapping[Path, Summary] = field(default_factory=dict)
    energies: Mapping[Path, JobEnergy] = field(default_factory=dict)
    """Energy of their jobs, from the scheduler's accounting."""


def read_point_results(study: Scaling, folder: StudyFolder, statuses: Mapping[str, RunStatus]) -> list[PointResult]:
    """A row for each point of the study, with however many of its repeats are done."""
    members: dict[Point, list[list[PlannedRun]]] = {}
    for group in groups(study):
        members.setdefault(group[0].point, []).append(group)
    done = {folder.run(name): state.summary for name, state in statuses.items()
            if state.done and state.summary is not None}  # fmt: skip
    unread = [path for path, summary in done.items() if summary.energy_j is None]
    known = Known(done, accounted_energies(unread, packing_jobs(folder)))
    return [read_point_result(study, folder, point, members[point], statuses, known) for point in points(study)]


def read_point_result(
    study: Scaling, folder: StudyFolder, point: Point, repeats: Sequence[Sequence[PlannedRun]],
    statuses: Mapping[str, RunStatus], known: Known,
) -> PointResult:  # fmt: skip
    """The row of one point."""
    runs, failed, left = [], [], 0
    for group in repeats:
        states = [statuses[run.name] for run in group]
        done = [folder.run(run.name) for run, now in zip(group, states, strict=True) if now.done]
        bad = {run.name: now.reason for run, now in zip(group, states, strict=True) if now.status in FAILED}
        if len(done) + len(bad) < len(group):
            left += 1
        elif not done:
            failed.append("; ".join(f"{name}: {reason}" for name, reason in bad.items()))
        else:
            try:
                runs.append(read_repeat(done, timed=study.steps is None, failed=bad, known=known))
            except DataError as error:
                failed.append(str(error))
    return PointResult(
        nodes=point.nodes, variant=point.label, runs=runs, failed=failed, left=left,
        instances=instances(study, point.nodes), ranks_per_node=study.ranks_per_node,
        cores_per_node=study.ranks_per_node * study.cores_per_rank,
        gpus_per_node=study.ranks_per_node * study.gpus_per_rank,
        settings=variant_settings(point.variant),
    )  # fmt: skip


def read_repeat(
    paths: Sequence[Path], timed: bool, failed: Mapping[str, str] | None = None, known: Known | None = None
) -> RepeatResult:
    """One repeat of a point from the run folders of its instances. Raises ``DataError``.

    ``timed``: the runs trained to their target, so that the time to it is a figure. ``failed`` are further instances,
    with the reason why each failed; ``known`` is what has already been read about the runs.
    """
    known = known or Known()
    lost = [Pruned(name, "failed", reason) for name, reason in (failed or {}).items()]
    clocks, counted_paths, apart = instances_that_count(paths, lost)
    runs = [read_run(path, known.summaries.get(path)) for path in counted_paths]
    summaries = [run[0] for run in runs]
    first, ranks = summaries[0], pd.concat([run[1] for run in runs])
    joules, energy_words = energy(counted_paths, runs, known.energies)
    busy, device_words = accelerators_busy(runs)
    met = [number for number, s in enumerate(summaries) if timed and s.epochs_to_target is not None]
    pruned = [*lost, *apart, *(missed_targets(counted_paths, summaries) if timed else [])]
    counted = [clocks[path.name] for path in counted_paths if path.name in clocks]
    steps = parts_of_steps(ranks)
    return RepeatResult(
        ranks=len(ranks),
        global_batch_size=first.global_batch_size,
        samples_per_s=sum(s.warm_samples_per_s or 0.0 for s in summaries),
        step_s=step_seconds(steps),
        step_median_s=step_over_ranks(steps, np.median),
        step_slowest_s=step_over_ranks(steps, np.max),
        slowest_rank=slowest_rank(ranks, steps) if len(ranks) > 1 else "",
        init_s=max(map(start_s, summaries)),
        **staging_figures([run[2] for run in runs if run[2] is not None]),
        evaluation_s=of_one(summaries, "evaluation", [s.evaluations for s in summaries]),
        checkpoint_s=of_one(summaries, "checkpoint", [s.checkpoints for s in summaries]),
        time_s=time_of([counted[number] for number in met] if counted else [], [summaries[number] for number in met]),
        wall_s=max(s.wall_s for s in summaries),
        samples=sum(s.samples for s in summaries),
        joules=joules,
        joules_per_sample=joules_per_sample(runs),
        energy_words=energy_words,
        cpu_used=(ranks["cpu_s"] / (ranks["wall_s"] * ranks["threads"])).tolist(),
        device_busy=busy,
        device_words=device_words,
        flops_per_sample=first.flops_training_per_sample,
        peak_flops=all_peak_flops(ranks),
        slow=[words for s in summaries for words in s.slow_nodes],
        train_samples=first.train_samples,
        peak_memory_bytes=max(s.peak_memory_bytes for s in summaries),
        train_bytes=first.train_bytes,
        validation_bytes=first.validation_bytes,
        folder_bytes=max(s.folder_bytes for s in summaries),
        device_type=first.device_type,
        instances=len(counted_paths),
        models=len(met),
        missed=len(summaries) - len(met) if timed else 0,
        samples_per_model=fmean(summaries[number].samples for number in met) if met else None,
        span_s=time_of(counted, summaries),
        last_start_s=last_start_s(counted) if counted else 0.0,
        together=share_together(counted) if counted else 1.0,
        clocks=list(clocks.values()),
        pruned=sorted(pruned, key=lambda one: one.name) if len(paths) + len(lost) > 1 else (),
    )


def start_s(summary: Summary) -> float:
    """Seconds from the start of the process to run_start, or to where a run was resumed: the mean over its attempts."""
    return summary.phases_s["init"] / (1 + summary.resumed)


def staging_figures(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Seconds of the slowest instance, bytes and bytes/s of all instances; each ``None`` if nothing was staged.

    An instance that found all its files there has staged nothing.
    """
    reports = [report for report in reports if report["bytes_landed"]]
    return {
        "staging_s": max((float(report["seconds"]) for report in reports), default=None),
        "staged_bytes": sum(int(report["bytes_landed"]) for report in reports) if reports else None,
        "staging_bytes_per_s": sum(float(report["bytes_per_s"]) for report in reports) if reports else None,
    }


def missed_targets(paths: Sequence[Path], summaries: Sequence[Summary]) -> list[Pruned]:
    """The instances that did not reach their target, which no figure of the time to it includes."""
    return [
        Pruned(path.name, "missed", s.reason or "missed its target")
        for path, s in zip(paths, summaries, strict=True)
        if s.epochs_to_target is None
    ]


def instances_that_count(
    paths: Sequence[Path], lost: Sequence[Pruned]
) -> tuple[dict[str, InstanceClock], list[Path], list[Pruned]]:
    """The clocks of several instances by name, the folders of those that ran at the same time, and the others.

    Raises ``DataError`` if only half of all instances or fewer ran at the same time.
    """
    if len(paths) + len(lost) == 1:
        return {}, list(paths), []
    clocks = {path.name: read_clock(path) for path in paths}
    together, apart = concurrent(list(clocks.values()))
    names = {clock.name for clock in together}
    count = len(paths) + len(lost)
    if 2 * len(names) <= count:
        why = "; ".join(f"{instance.name}: {instance.reason}" for instance in (*lost, *apart))
        problem = f"has {len(names)} of {count} instances that ran at the same time ({why})"
        raise DataError(paths[0].parent, problem, "give more --repeats to make the point again")
    return clocks, [path for path in paths if path.name in names], apart


def time_of(clocks: Sequence[InstanceClock], summaries: Sequence[Summary]) -> float | None:
    """Seconds from the first run_start to the last run_stop; for a single run from its summary, ``None`` for no run.

    ``None``, too, for a single run that was stopped and resumed: its clock kept running. Of several instances, one that
    was stopped for long has been pruned.
    """
    if clocks:
        return span_s(clocks)
    return summaries[0].time_to_solution_s if summaries and not summaries[0].resumed else None


def step_seconds(rank_seconds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Mean seconds of a step over ranks, by phase, with the rest of its wall time.

    ``rank_seconds`` has the seconds by rank.
    """
    means = {name: float(values.mean()) for name, values in rank_seconds.items()}
    wall = means.pop("wall")
    return {**means, "other": max(0.0, wall - sum(means.values()))}


def step_over_ranks(rank_seconds: Mapping[str, np.ndarray], pick: Callable[[np.ndarray], float]) -> dict[str, float]:
    """Seconds of a step by phase, ``other`` and ``wall``: for each, what ``pick`` makes of the values of all ranks."""
    other = rank_seconds["wall"] - sum(values for name, values in rank_seconds.items() if name != "wall")
    return {name: float(pick(values)) for name, values in {**rank_seconds, "other": np.maximum(other, 0.0)}.items()}


def slowest_rank(ranks: pd.DataFrame, rank_seconds: Mapping[str, np.ndarray]) -> str:
    """The rank of the longest step by name, without the time that ranks wait for it."""
    row = ranks.iloc[int((rank_seconds["wall"] - rank_seconds.get("waiting", 0.0)).argmax())]
    return rank_name({"rank": row["rank"], "node": row["node"]})


def parts_of_steps(ranks: pd.DataFrame) -> dict[str, np.ndarray]:
    """Seconds of a step on each rank, (ranks,), by the phases that every rank has measured, and its ``wall`` time."""
    totals = {name: ranks[f"{name}_s"].to_numpy() for name in (*STEP_PHASES, "wall") if f"{name}_s" in ranks}
    steps = ranks["steps"].to_numpy()
    return {name: values / steps for name, values in totals.items() if not np.isnan(values).any()}


def of_one(summaries: Sequence[Summary], phase: str, counts: Sequence[int]) -> float | None:
    """Seconds of one evaluation, or checkpoint; ``None`` if there was none."""
    pairs = [(s.phases_s[phase], count) for s, count in zip(summaries, counts, strict=True) if count]
    return fmean(seconds / count for seconds, count in pairs) if pairs else None


def accelerators_busy(runs: Sequence[Figures]) -> tuple[list[float], str]:
    """Busy share of the accelerator of every rank, or why it is not known; neither if processors train."""
    rank_tables = [ranks for summary, ranks, _ in runs if summary.device_type not in ("", "cpu")]
    if not rank_tables:
        return [], ""
    ranks = pd.concat(rank_tables).reindex(columns=["device_busy_s", "device_sampled_s", "device_note"])
    share = ranks["device_busy_s"] / ranks["device_sampled_s"].where(ranks["device_sampled_s"] > 0)
    if share.notna().all():
        return share.tolist(), ""
    noted = ranks["device_note"][share.isna()].dropna()
    return [], no_counter([{"device_note": noted.iloc[0]}] if len(noted) else [])


def all_peak_flops(ranks: pd.DataFrame) -> float | None:
    """FLOP/s of matrix products on all ranks together; ``None`` if a rank was not measured."""
    if "gemm_flops" not in ranks or ranks["gemm_flops"].isna().any():
        return None
    return float(ranks["gemm_flops"].sum())
