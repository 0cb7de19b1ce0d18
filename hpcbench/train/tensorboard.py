"""Writes losses, rates and metrics for TensorBoard, if it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpcbench.config.schema import RunConfig
from hpcbench.train.measurement import Measurement, ObserverInputs
from hpcbench.train.observers import Row, StepObserver
from staging.errors import InputError

FOLDER = "tensorboard"


def check_tensorboard(config: RunConfig, parts: int) -> None:
    """Raise ``InputError`` if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError(
            'measure.tensorboard needs TensorBoard, which is not installed; pip install "hpcbench-ml[tensorboard]", '
            "or set measure.tensorboard false"
        )


class TensorBoard(StepObserver):
    """Writes the values of the run's tables into ``folder``; a resumed run continues there."""

    def __init__(self, folder: Path, step: int) -> None:
        """``step`` is the last step that is kept of earlier attempts."""
        self.folder, self.purge_step = folder, step + 1 if step else None

    @cached_property
    def writer(self) -> Any:
        """Made with the first value: a run that is refused to resume leaves nothing in the folder."""
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.folder), purge_step=self.purge_step)

    def flushed(self, tables: Mapping[str, Sequence[Row]]) -> None:
        """Write the loss and learning rate of each step."""
        for row in tables.get("steps.csv", ()):
            self.writer.add_scalar("train/loss", row["loss"], row["step"])
            self.writer.add_scalar("train/lr", row["lr"], row["step"])
        for row in tables.get("noise_scale.csv", ()):
            if row["b_simple"] != "":
                self.writer.add_scalar("train/noise_scale", row["b_simple"], row["step"])

    def evaluated(self, row: Row) -> None:
        """Write metrics and throughput at an evaluation."""
        for key, value in row.items():
            if key not in ("epoch", "step", "samples", "lr"):
                self.writer.add_scalar(f"evaluation/{key}", value, row["step"])
        self.writer.flush()

    def close(self) -> None:
        """Close the files, if there are any."""
        if "writer" in vars(self):
            self.writer.close()


def of_run(parts: ObserverInputs) -> TensorBoard:
    """The observer of a run, which writes into a subfolder of the run folder."""
    return TensorBoard(parts.run.folder.path / FOLDER, parts.resumed_step)


MEASUREMENT = Measurement(
    TensorBoard, lambda config: config.measure.tensorboard, of_run, only_first=True, check=check_tensorboard
)
