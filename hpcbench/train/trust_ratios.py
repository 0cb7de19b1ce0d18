"""Trust ratios of the layers while a run trains, from the optimizers that have them (LARS, LAMB).

A step that is recorded computes what every step does; the ratios stay on the device until ``flush``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.train.observers import Row, StepInfo, StepObserver


class TrustRatios(StepObserver):
    """Records every ``every`` optimizer steps what ``optimizer``, a ``LayerwiseOptimizer``, did to each layer."""

    table = "trust_ratios.csv"

    def __init__(self, optimizer: Any, model: nn.Module, every: int) -> None:
        self.optimizer = optimizer
        self.every = every
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.pending: list[tuple[int, list[str], Tensor]] = []

    def before_optimizer(self, info: StepInfo) -> None:
        """Ask the optimizer for its ratios, if the step is recorded."""
        self.optimizer.record = info.number % self.every == 0

    def after_optimizer(self, info: StepInfo, loss: Tensor) -> None:
        """Keep what was asked for."""
        if self.optimizer.record and self.optimizer.recorded:
            names = [self.names[parameter] for parameters, _ in self.optimizer.recorded for parameter in parameters]
            self.pending.append((info.number, names, torch.cat([ratios for _, ratios in self.optimizer.recorded])))

    def flush(self, epoch: int) -> list[Row]:
        """Rows of ``trust_ratios.csv``, one per layer and step; waits for the device."""
        rows: list[Row] = [
            {"epoch": epoch, "step": step, "layer": name, "trust_ratio": ratio}
            for step, names, ratios in self.pending
            for name, ratio in zip(names, ratios.tolist(), strict=True)
        ]
        self.pending.clear()
        return rows
