"""Losses of the steps, kept on the device and fetched now and then, so that no step waits for the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hpcbench.exits import Aborted
from hpcbench.parallel.group import Group


class LossBuffer:
    """Loss contributions of this rank; ``flush`` sums them over ranks and checks that they are finite."""

    def __init__(self, group: Group, device: torch.device) -> None:
        self.group = group
        self.device = device
        self.pending: list[tuple[int, int, float, Tensor]] = []

    def add(self, step: int, samples: int, lr: float, loss: Tensor) -> None:
        """Keep one step: its number, the samples so far, the learning rate and the loss on the device."""
        self.pending.append((step, samples, lr, loss))

    def flush(self, epoch: int) -> list[list[float]]:
        """Rows (epoch, step, samples, lr, loss); waits for the device. Raises ``Aborted`` if a loss is not finite."""
        if not self.pending:
            return []
        losses = torch.stack([loss for *_, loss in self.pending]).to(torch.float64)
        self.group.all_reduce_sum(losses)
        rows = [
            [epoch, step, samples, lr, loss]
            for (step, samples, lr, _), loss in zip(self.pending, losses.tolist(), strict=True)
        ]
        self.pending.clear()
        for row in rows:
            if not math.isfinite(row[4]):
                raise Aborted(
                    f"the loss is {row[4]} at step {int(row[1])}; lower --optim.lr or start from another seed"
                )
        return rows
