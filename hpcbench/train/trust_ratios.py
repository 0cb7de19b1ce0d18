"""Records what an optimizer with trust ratios (LARS, LAMB) does to each layer while a run trains.

A recorded step gives its rate and, for each layer, the trust ratio, the norm of the weights before the step and the
norm of their change. All values stay on the device until ``flush``; the change needs a copy of the weights during such
a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.optim.tensors import buckets, local, squared_norms, summed_over_shards
from hpcbench.train.measurement import Measurement, ObserverInputs
from hpcbench.train.observers import Row, StepInfo, StepObserver

COLUMNS = ("epoch", "step", "layer", "lr", "trust_ratio", "weight_norm", "update_norm")
"""Columns of ``trust_ratios.csv``."""


class TrustRatios(StepObserver):
    """Records every ``every`` optimizer steps what ``optimizer``, a ``LayerwiseOptimizer``, did to each layer."""

    table = "trust_ratios.csv"

    def __init__(self, optimizer: Any, model: nn.Module, every: int) -> None:
        self.optimizer = optimizer
        self.every = every
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self.before: list[tuple[list[Tensor], list[Tensor], Tensor]] = []
        """For each bucket: its parameters, copies of their parts on this rank, and the squares of their norms."""
        self.pending: list[tuple[StepInfo, list[str], Tensor]] = []

    def before_optimizer(self, info: StepInfo) -> None:
        """Ask the optimizer for its ratios, and copy the weights, if the step is recorded."""
        self.optimizer.record = info.number % self.every == 0
        if self.optimizer.record:
            updated = [parameter for parameter in self.names if parameter.grad is not None]
            with torch.no_grad():
                for part in buckets(updated):
                    copies = [local(parameter).clone() for parameter in updated[part]]
                    self.before.append((updated[part], copies, squares_of(copies, updated[part])))

    def after_optimizer(self, info: StepInfo, loss: Tensor) -> None:
        """Keep the ratios and norms, on the device, if the step is recorded."""
        if not self.optimizer.record:
            return
        norms: dict[Tensor, Tensor] = {}
        for parameters, copies, squares in self.before:
            with torch.no_grad():
                torch._foreach_sub_(copies, [local(parameter) for parameter in parameters])
                both = torch.stack([squares, squares_of(copies, parameters)]).sqrt()
            norms |= dict(zip(parameters, both.T, strict=True))
        self.before.clear()
        for parameters, ratios in self.optimizer.recorded:
            names = [self.names[parameter] for parameter in parameters]
            layer_norms = torch.stack([norms[parameter] for parameter in parameters])
            self.pending.append((info, names, torch.cat([ratios[:, None].to(layer_norms), layer_norms], dim=1)))

    def flush(self, epoch: int) -> list[Row]:
        """Rows of ``trust_ratios.csv``, one per layer and step; waits for the device."""
        rows: list[Row] = [
            dict(zip(COLUMNS, (epoch, info.number, name, info.lr, *values), strict=True))
            for info, names, layer_values in self.pending
            for name, values in zip(names, layer_values.tolist(), strict=True)
        ]
        self.pending.clear()
        return rows


def squares_of(tensors: list[Tensor], parameters: list[Tensor]) -> Tensor:
    """Squared norms of whole tensors; ``tensors`` are this rank's parts of them, cut as ``parameters`` are."""
    return summed_over_shards(squared_norms(tensors), parameters[0])


def of_run(parts: ObserverInputs) -> TrustRatios:
    """The observer of a run, for the layers of its model."""
    step = parts.step
    return TrustRatios(step.optimizer.optimizer, step.model, parts.run.config.train.trust_ratios_every)


MEASUREMENT = Measurement(TrustRatios, lambda config: config.train.trust_ratios_every, of_run)
