"""Batch-norm statistics before evaluation: the arithmetic mean over all ranks, as the MLPerf HPC rules have it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hpcbench.parallel.group import Group


def average_statistics(model: nn.Module, group: Group) -> None:
    """Replace every running mean and variance by its mean over ranks, in one message.

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
