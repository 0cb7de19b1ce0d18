"""Reads what the runs of a scaling study measured: one ``Measured`` for each repeat, one ``Row`` for each point."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hpcbench.batch.job_energy import FILE, JobEnergy, job_energy, read_kept
from hpcbench.batch.submission import RECORD, read_job
from hpcbench.phase_names import STEP_PHASES
from hpcbench.results.machine_use import device_busy, no_counter, peak_flops
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.folder import StudyFolder
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.ladder import PlannedRun, Point, groups, instances, points, variant_settings
from hpcbench.study.scaling.rows import Measured, Row
from hpcbench.study.scaling.run_status import RunStatus
from staging.errors import DataError
from staging.formats.regular import read_text

Record = dict[str, Any]
Figures = tuple[Summary, list[Record], Record | None]
"""Of a run: its summary, its ranks, and its staging report where there is one."""


def read_rows(study: Scaling, folder: StudyFolder, standings: Mapping[str, RunStatus]) -> list[Row]:
    """A row for each point of the study, whatever it has of its repeats."""
    members: dict[Point, list[list[PlannedRun]]] = {}
    for group in groups(study):
        members.setdefault(group[0].point, []).append(group)
    return [read_row(study, folder, point, members[point], standings) for point in points(study)]


def read_row(
    study: Scaling, folder: StudyFolder, point: Point, repeats: Sequence[Sequence[PlannedRun]],
    standings: Mapping[str, RunStatus],
) -> Row:  # fmt: skip
    """The row of one point."""
    runs, failed, left = [], [], 0
    for group in repeats:
        each = [standings[run.name] for run in group]
        bad = [f"{run.name}: {now.reason}" for run, now in zip(group, each, strict=True) if now.status == "failed"]
        if all(now.status == "done" for now in each):
            try:
                runs.append(read_repeat([folder.run(run.name) for run in group], timed=study.steps is None))
            except DataError as error:
                failed.append(str(error))
        elif bad:
            failed.append("; ".join(bad))
        else:
            left += 1
    return Row(
        nodes=point.nodes, variant=point.label, runs=runs, failed=failed, left=left,
        instances=instances(study, point.nodes), ranks_per_node=study.ranks_per_node,
        cores_per_node=study.ranks_per_node * study.cores_per_rank,
        gpus_per_node=study.ranks_per_node * study.gpus_per_rank,
        settings=variant_settings(point.variant),
    )  # fmt: skip


def read_repeat(paths: Sequence[Path], timed: bool) -> Measured:
    """One repeat of a point from the run folders of its instances. Raises ``DataError``.

    ``timed``: the runs trained to their target, so that the time to it is a figure.
    """
    each = [read_run(path) for path in paths]
    summaries = [run[0] for run in each]
    first, ranks = summaries[0], [rank for run in each for rank in run[1]]
    staged = [run[2] for run in each if run[2] is not None]
    joules, energy_words = energy(paths, each)
    busy, device_words = accelerators_busy(each)
    return Measured(
        ranks=len(ranks),
        global_batch_size=first.global_batch_size,
        samples_per_s=sum(s.warm_samples_per_s or 0.0 for s in summaries),
        step_s=step_seconds(ranks),
        step_median_s=step_over_ranks(ranks, median),
        step_slowest_s=step_over_ranks(ranks, max),
        init_s=max(s.phases_s["init"] for s in summaries),
        staging_s=max((float(record["seconds"]) for record in staged), default=None),
        staged_bytes=sum(int(record["bytes_landed"]) for record in staged) if staged else None,
        staging_bytes_per_s=sum(float(record["bytes_per_s"]) for record in staged) if staged else None,
        evaluation_s=of_one(summaries, "evaluation", [s.evaluations for s in summaries]),
        checkpoint_s=of_one(summaries, "checkpoint", [s.checkpoints for s in summaries]),
        time_s=time_to_target(paths, summaries) if timed else None,
        wall_s=max(s.wall_s for s in summaries),
        samples=sum(s.samples for s in summaries),
        joules=joules,
        joules_per_sample=joules_per_sample(each),
        energy_words=energy_words,
        cpu_used=[rank["cpu_s"] / (rank["wall_s"] * rank["threads"]) for rank in ranks],
        device_busy=busy,
        device_words=device_words,
        flops_per_sample=first.flops_training_per_sample,
        peak_flops=peak_flops(ranks),
        slow=[words for s in summaries for words in s.slow_nodes],
        train_samples=first.train_samples,
        peak_memory_bytes=max(s.peak_memory_bytes for s in summaries),
        train_bytes=first.train_bytes,
        validation_bytes=first.validation_bytes,
        folder_bytes=max(s.folder_bytes for s in summaries),
        device_type=first.device_type,
    )


def read_run(path: Path) -> Figures:
    """Summary, ranks, and staging report where there is one. Raises ``DataError`` where nothing was measured."""
    folder = RunFolder(path)
    summary = folder.read_summary()
    ranks = [clean(record) for record in folder.read_ranks().to_dict("records")]
    if not ranks or not all(rank["steps"] for rank in ranks):
        raise DataError(
            folder.ranks, f"has no step after the warm-up ({summary.steps} steps in all)",
            "give more --steps, or lower measure.warmup_steps",
        )  # fmt: skip
    return summary, ranks, read_json(folder.staging) if folder.staging.exists() else None


def clean(record: Mapping[Any, Any]) -> dict[str, Any]:
    """A row of a table with unset values for its empty cells."""
    return {str(key): None if isinstance(value, float) and math.isnan(value) else value
            for key, value in record.items()}  # fmt: skip


def read_json(path: Path) -> Record:
    """A JSON object. Raises ``DataError``."""
    try:
        found = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise DataError(path, f"cannot be read ({error})", "restore it, or run it again") from None
    if not isinstance(found, dict):
        raise DataError(path, "is no record", "restore it, or run it again")
    return found


def step_seconds(ranks: Sequence[Record]) -> dict[str, float]:
    """Seconds of a step by phase, the mean over ranks, with what is left of its wall time."""
    known = known_phases(ranks)
    found = {name: fmean(rank[f"{name}_s"] / rank["steps"] for rank in ranks) for name in known}
    wall = fmean(rank["wall_s"] / rank["steps"] for rank in ranks)
    return {**found, "other": max(0.0, wall - sum(found.values()))}


def step_over_ranks(ranks: Sequence[Record], pick: Callable[[Sequence[float]], float]) -> dict[str, float]:
    """Seconds of a step by phase, ``other`` and ``wall``: of the values of all ranks, what ``pick`` makes of each."""
    each = []
    for rank in ranks:
        seconds = {name: rank[f"{name}_s"] for name in known_phases(ranks)}
        whole = {"other": max(0.0, rank["wall_s"] - sum(seconds.values())), "wall": rank["wall_s"]}
        each.append({name: value / rank["steps"] for name, value in (seconds | whole).items()})
    return {name: float(pick([found[name] for found in each])) for name in each[0]}


def known_phases(ranks: Sequence[Record]) -> list[str]:
    """The phases of a step that every rank has measured."""
    return [name for name in STEP_PHASES if all(rank.get(f"{name}_s") is not None for rank in ranks)]


def of_one(summaries: Sequence[Summary], phase: str, counts: Sequence[int]) -> float | None:
    """Seconds of one evaluation, or checkpoint; unset where there was none."""
    pairs = [(s.phases_s[phase], count) for s, count in zip(summaries, counts, strict=True) if count]
    return fmean(seconds / count for seconds, count in pairs) if pairs else None


def time_to_target(paths: Sequence[Path], summaries: Sequence[Summary]) -> float | None:
    """From the first run_start to the last run_stop, if all instances met their target."""
    if any(s.epochs_to_target is None for s in summaries):
        return None
    if len(paths) == 1:
        return summaries[0].time_to_solution_s
    starts, stops = zip(*(clock(path) for path in paths), strict=True)
    return float(max(stops) - min(starts)) / 1e3


def clock(path: Path) -> tuple[float, float]:
    """Milliseconds since the epoch of run_start and run_stop in the log of a run. Raises ``DataError``."""
    from hpcbench.results.mllog_reader import read_events

    times = {event.key: float(event.time_ms) for event in read_events(RunFolder(path).mllog)[0]}
    if "run_start" not in times or "run_stop" not in times:
        raise DataError(RunFolder(path).mllog, "lacks run_start or run_stop", "run it again")
    return times["run_start"], times["run_stop"]


def energy(paths: Sequence[Path], runs: Sequence[Figures]) -> tuple[float | None, str]:
    """Joules of all instances and what they cover: what the runs read themselves, else the scheduler's of jobs."""
    if share_nodes(runs):
        return None, "not added up: instances had nodes in common, and each read these whole"
    own = [summary.energy_j for summary, _, _ in runs if summary.energy_j is not None]
    if len(own) == len(runs):
        return sum(own), f"{runs[0][0].energy_source}: {runs[0][0].energy_note}"
    note = next(summary.energy_note for summary, _, _ in runs if summary.energy_j is None)
    accounted = [found for path in paths if (found := accounted_energy(path)) is not None]
    known = [found.joules for found in accounted if found.joules is not None]
    if len(known) == len(paths):
        return sum(known), "; ".join(dict.fromkeys(found.words for found in accounted))
    why = next((found.words for found in accounted if found.joules is None), "")
    return None, f"{note.rstrip('.')}; {why}" if why else note


def accounted_energy(path: Path) -> JobEnergy | None:
    """Energy of the job of a run by its scheduler's accounting, or by what is kept of that; unset of no job."""
    if (path / FILE).exists():
        return read_kept(path / FILE)
    return job_energy(read_job(path)) if (path / RECORD).exists() else None


def accelerators_busy(runs: Sequence[Figures]) -> tuple[list[float], str]:
    """Busy share of the accelerator of every rank, or why it is not known; neither where processors train."""
    ranks = [rank for summary, rows, _ in runs if summary.device_type not in ("", "cpu") for rank in rows]
    known = [share for rank in ranks if (share := device_busy(rank)) is not None]
    if len(known) == len(ranks):
        return known, ""
    return [], no_counter([rank for rank in ranks if device_busy(rank) is None])


def share_nodes(runs: Sequence[Figures]) -> bool:
    """Whether several of the runs had ranks on the same node."""
    nodes = [node for _, ranks, _ in runs for node in {rank["node"] for rank in ranks}]
    return len(nodes) > len(set(nodes))


def joules_per_sample(runs: Sequence[Figures]) -> float | None:
    """Energy of the warm steps over their samples, where every node was read."""
    joules, samples = 0.0, 0
    for summary, ranks, _ in runs:
        known = [rank["energy_j"] for rank in ranks if rank["energy_j"] is not None]
        readers = 1 if summary.simulated_nodes is not None else len({rank["node"] for rank in ranks})
        if summary.energy_j is None or len(known) < readers or share_nodes(runs):
            return None
        joules, samples = joules + sum(known), samples + int(ranks[0]["samples"])
    return joules / samples
