"""Estimates how long a study takes, from its runs that are done, or from a short one made for the estimate."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.config.schema import TrainConfig
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.units import counted, duration
from hpcbench.study.folder import StudyFolder
from hpcbench.study.local_runs import POLL_S, Launcher, Process, crash_reason
from hpcbench.study.run_slots import Slot
from hpcbench.study.run_status import RunStatus
from hpcbench.study.signal_counter import SignalCounter
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError

CALIBRATION_BATCHES = 16
"""Micro-batches of an epoch of a calibration."""

GRACE_S = 10.0
"""How long calibrations that are interrupted may take to end, before they are killed."""

EVALUATIONS = "train.evaluations_per_epoch"

ONE_RANK = {
    "parallel.simulated_ranks": "1", "parallel.simulated_nodes": "null", "train.batchnorm_group_size": "1",
    "train.noise_scale_every": "0", "staging.placement": "replicate", "staging.reshuffle": "false",
    "staging.contiguous": "false",
}  # fmt: skip
"""A calibration has the batch of one rank: nothing to compare for the noise scale, and no others to share with."""


@dataclass(frozen=True)
class Speed:
    """What an epoch and a start cost while several runs share the machine, and how many epochs runs take."""

    epoch_s: float
    start_s: float
    epochs: float
    source: str

    def total_s(self, runs: int, at_once: int) -> float:
        """Seconds that ``runs`` more runs take, ``at_once`` at a time."""
        return runs * (self.start_s + self.epochs * self.epoch_s) / at_once

    def words(self, runs: int, at_once: int) -> str:
        """The estimate in one line."""
        epochs = "one epoch" if self.epochs == 1 else f"{self.epochs:.3g} epochs"
        how = f"{epochs} of {duration(self.epoch_s)} each and {duration(self.start_s)} besides"
        total = f"about {duration(self.total_s(runs, at_once))} for {counted(runs, 'run')}"
        return f"{total}, {at_once} at once: {how}, {self.source}"


def speed_of_runs(statuses: Mapping[str, RunStatus], folder: StudyFolder) -> Speed | None:
    """The speed of runs that are done; ``None`` if there are none."""
    epoch, start, epochs = [], [], []
    for name, state in statuses.items():
        summary = state.summary
        if state.status not in ("reached", "missed") or summary is None or not summary.epochs or summary.resumed:
            continue
        table = RunFolder(folder.run(name)).read_epochs()
        per_epoch = float((table["train_s"] + table["eval_s"]).sum()) / summary.epochs
        epoch.append(per_epoch)
        start.append(max(0.0, summary.wall_s - summary.epochs * per_epoch))
        epochs.append(summary.epochs)
    if not epoch:
        return None
    source = f"as in {counted(len(epoch), 'finished run')}"
    return Speed(statistics.fmean(epoch), statistics.fmean(start), statistics.fmean(epochs), source)


def calibrate(
    run: StudyRun,
    launcher: Launcher,
    folder: Path,
    samples: tuple[int, int],
    slots: Sequence[Slot],
    train: TrainConfig,
) -> Speed:
    """Measure the speed with a short version of ``run`` in each of ``slots``, side by side: two epochs, few samples.

    ``samples`` are the sizes of the training and validation sets, ``train`` the settings of the study's runs. Raises
    ``InputError`` with the reason if a short run fails, since the study's runs would, too.
    """
    local = int(run.settings["train.local_batch_size"])
    few = [min(count, max(64, CALIBRATION_BATCHES * local)) for count in samples]
    settings = {
        "train.max_epochs": "2", "train.target": "null", "data.train_samples": str(few[0]),
        "data.validation_samples": str(few[1]), "train.checkpoint_every": "0", EVALUATIONS: "1", **ONE_RANK,
    }  # fmt: skip
    short = run.but_with("calibration", settings)
    folders = [folder / f"run{number}" for number in range(len(slots))]
    for path, code in zip(folders, run_side_by_side(short, launcher, folders, slots), strict=True):
        if code:
            raise InputError(f"a first short run failed ({crash_reason(code, path.with_suffix('.txt'))})")
    from hpcbench.results.records import read_run

    tables = [read_run(path) for path in folders]
    epochs = [table.epochs.iloc[-1] for table in tables]
    per_epoch = [
        float(row["train_s"]) * samples[0] / few[0]
        + train.evaluations_per_epoch * float(row["eval_s"]) * samples[1] / few[1]
        for row in epochs
    ]
    start = [max(0.0, t.summary.wall_s - float((t.epochs["train_s"] + t.epochs["eval_s"]).sum())) for t in tables]
    return Speed(
        statistics.fmean(per_epoch), statistics.fmean(start), train.max_epochs, "at most, as a short run has shown"
    )


def run_side_by_side(run: StudyRun, launcher: Launcher, folders: Iterable[Path], slots: Sequence[Slot]) -> list[int]:
    """Make ``run`` in each of the folders and slots at the same time; returns the exit codes."""
    processes: list[Process] = []
    with SignalCounter() as signals:
        try:
            for path, slot in zip(folders, slots, strict=True):
                processes.append(launcher.start(run.arguments(path, slot.threads), path.with_suffix(".txt"), slot))
            while any(process.poll() is None for process in processes):
                signals.check()
                time.sleep(POLL_S)
        finally:
            end(processes)
    return [process.poll() or 0 for process in processes]


def end(processes: Iterable[Process]) -> None:
    """End those that still run: by SIGTERM, which reaches all their ranks, and by SIGKILL if that takes too long."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.stop(signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while any(process.poll() is None for process in running) and time.monotonic() < until:
        time.sleep(POLL_S)
    for process in running:
        process.stop(signal.SIGKILL)
