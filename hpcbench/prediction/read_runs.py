"""Runs on a machine as measurements for calibration, and runs of a convergence study as epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hpcbench.mlperf.find_logs import find_runs
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.prediction.calibration import Measured
from hpcbench.prediction.entries import LEAST_STAGING_S, epochs_of
from hpcbench.prediction.platforms import Platform, check_device
from hpcbench.prediction.request import ALIKE
from hpcbench.prediction.step_time import case_of
from hpcbench.prediction.workload import Work
from hpcbench.results.attempts import is_cut
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from staging.errors import InputError


def measured_runs(records: Sequence[RunRecord], work: Work, platform: Platform, newer: bool) -> tuple[Measured, ...]:
    """What some runs show about ``platform``. Raises ``InputError`` for a run of something else."""
    return tuple(measured(record, work, platform, newer) for record in records)


def records_of(paths: Sequence[Path], option: str) -> list[RunRecord]:
    """The runs below some paths. Raises ``InputError`` where there are none."""
    for path in paths:
        if not path.exists():
            raise InputError(
                f"{option} {path} does not exist; give a run folder, an official log, or a folder with some"
            )
    return read_runs(find_runs(list(paths)))


def measured(record: RunRecord, work: Work, platform: Platform, newer: bool) -> Measured:
    """What one run measured. Raises ``InputError`` where it is of another training, or records too little."""
    where = f"--calibrate {record.path}"
    if record.application is None and record.reason:
        raise InputError(f"{where}: {record.reason}")
    if record.application != work.application:
        raise InputError(
            f"{where} is a run of {record.application or 'nothing that is known'}; give one of {work.application}"
        )
    summary = summary_of(record)
    if summary is not None:
        check_size(where, summary, work)
        check_times(where, summary)
        check_device(where, summary.device_type, summary.device, platform)
    batch, nodes = record.global_batch_size, record.nodes
    ranks = summary.world_size if summary is not None else record.accelerators
    step = step_of(record, summary)
    if batch is None or not ranks or not nodes or step is None:
        raise InputError(f"{where} does not tell its batch, its nodes and the time of its epochs; give another run")
    accumulation = summary.accumulation if summary is not None else 1
    case = case_of(work, platform, nodes, ranks / nodes, batch / ranks / accumulation, newer)
    staged = record.staging_s if record.staging_s and record.staging_s >= LEAST_STAGING_S else None
    landed = work.landed_on_node(nodes)
    watts = watts_of(summary, nodes) if summary is not None else None
    return Measured(case, step, accumulation, staged, landed / platform.network_bytes_per_s.central, watts)


def watts_of(summary: Summary, nodes: int) -> float | None:
    """Mean power of a node from run_start to run_stop, as the joules; unknown where these do not cover that time.

    No meter ran between the attempts of a resumed run, while its clock did.
    """
    if not summary.energy_j or not summary.time_to_solution_s or summary.resumed or is_cut(summary.energy_note):
        return None
    return summary.energy_j / summary.time_to_solution_s / nodes


def summary_of(record: RunRecord) -> Summary | None:
    """The summary of a run, where it is one of your own and has one."""
    if record.origin != "own":
        return None
    folder = RunFolder(record.path)
    return folder.read_summary() if folder.summary.exists() else None


def check_times(where: str, summary: Summary) -> None:
    """Raise ``InputError`` for a run whose times are those of no machine, or whose ranks share samples."""
    if summary.simulated_ranks is not None or summary.simulated_nodes is not None:
        raise InputError(f"{where} simulated its ranks or nodes, so that its times are of no machine; give another run")
    if summary.spatial != "1":
        raise InputError(
            f"{where} has ranks that share samples (parallel.spatial {summary.spatial}), and a prediction gives each "
            "rank whole samples; give a run with parallel.spatial 1"
        )


def check_size(where: str, summary: Summary, work: Work) -> None:
    """Raise ``InputError`` for a run whose samples are not those that are predicted."""
    sample_flop = summary.flops_training_per_sample
    if not sample_flop or abs(sample_flop / work.useful_flop - 1) > ALIKE:
        gflop = f"{sample_flop / 1e9:,.3g}" if sample_flop else "unknown"
        raise InputError(
            f"{where} ({summary.preset}) has samples of {gflop} GFLOP where those that are predicted "
            f"have {work.useful_flop / 1e9:,.4g}; give a run of that size"
        )


def step_of(record: RunRecord, summary: Summary | None) -> float | None:
    """Seconds of a step without epoch jitter."""
    batch = record.global_batch_size
    if batch is None:
        return None
    if summary is not None and summary.warm_samples_per_s:
        return batch / summary.warm_samples_per_s
    epochs = epochs_of(record)
    if epochs is None or record.train_samples is None or record.train_samples < batch:
        return None
    return epochs.usual / (record.train_samples // batch)


class OwnEpochs(NamedTuple):
    """What runs of your own tell of the epochs to a target."""

    epochs: dict[int, list[float]]
    """Of the runs that reached it, by batch."""
    missed: dict[int, int]
    """How many missed it, by batch."""
    target: float | None
    """Unset where only logs tell the runs."""


def own_epochs_of(path: Path, work: Work) -> OwnEpochs:
    """Epochs of the runs below a folder, all to one target.

    Raises ``InputError`` where none reached it, for a run whose samples are of another size, and for several targets.
    """
    targets: dict[float, RunRecord] = {}
    epochs_by_batch: dict[int, list[float]] = {}
    missed: dict[int, int] = {}
    trajectories = set()
    for record in records_of([path], "--recipe"):
        batch = record.global_batch_size
        if record.application != work.application or not batch:
            continue
        summary = summary_of(record)
        if not record.epochs and not missed_target(record, summary):
            continue
        if summary is not None:
            check_size(f"--recipe {record.path}", summary, work)
            if summary.target is not None:
                targets.setdefault(summary.target, record)
        trajectory = (batch, *record.qualities)
        if len(record.qualities) > 2 and trajectory in trajectories:
            continue
        trajectories.add(trajectory)
        if record.epochs:
            epochs_by_batch.setdefault(batch, []).append(record.epochs)
        else:
            missed[batch] = missed.get(batch, 0) + 1
    if len(targets) > 1:
        told = ", ".join(f"{target:g} in {record.path}" for target, record in targets.items())
        raise InputError(f"--recipe {path} has runs to several targets ({told}); give runs to one")
    if not epochs_by_batch:
        raise InputError(
            f"--recipe {path} has no run of {work.application} that reached its target; give another folder"
        )
    return OwnEpochs(epochs_by_batch, missed, next(iter(targets), None))


def missed_target(record: RunRecord, summary: Summary | None) -> bool:
    """Whether a run ended without its target, or diverged; one that was cut off tells neither."""
    if summary is None:
        return record.status == "aborted"
    return summary.status == "target_not_reached" or summary.cause == "diverged"
