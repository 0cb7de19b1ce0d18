"""Batch-norm statistics of real and simulated ranks, and their mean before evaluation (MLPerf HPC rules)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hpcbench.parallel.group import Group


def average_statistics(model: nn.Module, group: Group) -> None:
    """Replace every running mean and variance with its mean over ranks, in one message.

    The mean of variances ignores how far the means lie apart, as published (DeepCAM reference, mlcommons/hpc).
    ``num_batches_tracked`` stays as it is.
    """
    if group.world_size == 1:
        return
    statistics = running_statistics(model)
    if not statistics:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in statistics])
    group.all_reduce_sum(flat).div_(group.world_size)
    offset = 0
    for tensor in statistics:
        tensor.copy_(flat[offset : offset + tensor.numel()].view(tensor.shape))
        offset += tensor.numel()


def running_statistics(model: nn.Module) -> list[Tensor]:
    """All running means and variances of the model, in module order."""
    return [
        tensor
        for module in model.modules()
        for name in ("running_mean", "running_var")
        if isinstance(tensor := getattr(module, name, None), Tensor)
    ]


class RankStatistics:
    """Running statistics of each simulated rank of a process, copied into the model's buffers when its turn comes.

    The buffers stay in place, so that a captured graph finds them. ``num_batches_tracked`` is also kept for each rank.
    """

    def __init__(self, model: nn.Module, ranks: int) -> None:
        statistics = running_statistics(model)
        self._averaged = len(statistics)
        self._live = statistics + [
            counter
            for module in model.modules()
            if isinstance(counter := getattr(module, "num_batches_tracked", None), Tensor)
        ]
        self._held = [[tensor.clone() for tensor in self._live] for _ in range(ranks)]
        self._turn = 0
        self.are_averaged = False
        """Whether all ranks have the same statistics, since no training pass came after ``average``."""

    def use(self, turn: int) -> None:
        """Put the statistics of simulated rank ``turn`` of this process, counted from 0, into the model."""
        if turn != self._turn:
            self._copy(self._live, to=self._held[self._turn])
            self._copy(self._held[turn], to=self._live)
            self._turn = turn

    def average(self, model: nn.Module, group: Group) -> None:
        """Give ``model`` and every simulated rank the mean over all ranks, simulated and real.

        Does nothing if they have it already: the mean of equal numbers is rounded, so it may differ from them.
        """
        if self.are_averaged:
            return
        held = [statistics[: self._averaged] for statistics in self.state()]
        live = self._live[: self._averaged]
        for mean, *copies in zip(live, *held, strict=True):
            mean.copy_(torch.stack(copies).mean(dim=0))
        average_statistics(model, group)
        for statistics in held:
            self._copy(live, to=statistics)
        self.are_averaged = True

    def state(self) -> list[list[Tensor]]:
        """The statistics of each simulated rank, for a checkpoint; the model then has those of the first."""
        self.use(0)
        self._copy(self._live, to=self._held[0])
        return self._held

    def load(self, state: list[list[Tensor]]) -> None:
        """Continue from what ``state`` returned."""
        for held, saved in zip(self._held, state, strict=True):
            for tensor, value in zip(held, saved, strict=True):
                tensor.copy_(value)
        self._copy(self._held[0], to=self._live)
        self._turn = 0

    def _copy(self, tensors: list[Tensor], to: list[Tensor]) -> None:
        # Each part is of one type, so that a GPU copies it in a few kernels.
        for part in (slice(self._averaged), slice(self._averaged, None)):
            if tensors[part]:
                torch._foreach_copy_(to[part], tensors[part])
