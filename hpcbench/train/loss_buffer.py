"""Losses of the steps, kept on the device and fetched occasionally, so that no step waits for the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hpcbench.parallel.exposed import UNRECORDED, Recorder
from hpcbench.parallel.group import Group
from hpcbench.train.measurement import Measurement
from hpcbench.train.observers import Row, StepInfo, StepObserver


class LossNotFiniteError(Exception):
    """The loss of a step is infinite or not a number; raised on all ranks together."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"the loss is {loss} at step {step}; lower --optim.lr or start from another seed")


class LossBuffer(StepObserver):
    """Loss contributions of this rank; ``flush`` sums them over ranks, and ``check`` raises for one not finite."""

    table = "steps.csv"

    def __init__(self, group: Group, recorder: Recorder = UNRECORDED) -> None:
        self.group = group
        self.channel = recorder.channel("losses", group.latest, on_host=True)
        self.pending: list[tuple[StepInfo, Tensor]] = []
        self.not_finite: LossNotFiniteError | None = None

    def after_optimizer(self, info: StepInfo, loss: Tensor) -> None:
        """Keep one step: its loss stays on the device."""
        self.pending.append((info, loss))

    def flush(self, epoch: int) -> list[Row]:
        """Rows epoch, step, samples, lr and loss up to the first that is not finite; waits for the device."""
        if not self.pending:
            return []
        losses = torch.stack([loss for _, loss in self.pending]).to(torch.float64)
        if self.group.world_size > 1:
            with self.channel.message():
                values = self.group.all_reduce_sum(losses).tolist()
        else:
            values = losses.tolist()
        rows: list[Row] = [
            {"epoch": epoch, "step": info.number, "samples": info.samples, "lr": info.lr, "loss": loss}
            for (info, _), loss in zip(self.pending, values, strict=True)
        ]
        self.pending.clear()
        for number, row in enumerate(rows):
            if not math.isfinite(row["loss"]):
                self.not_finite = LossNotFiniteError(row["step"], row["loss"])
                return rows[:number]
        return rows

    def check(self) -> None:
        """Raise ``LossNotFiniteError`` for the first loss that was not finite."""
        if self.not_finite is not None:
            raise self.not_finite


MEASUREMENT = Measurement(
    LossBuffer, lambda _: True, lambda parts: LossBuffer(parts.run.group, parts.run.communication)
)
