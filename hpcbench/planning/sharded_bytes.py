"""Bytes of a model whose parameters are sharded over data-parallel ranks: in a shard, gathered at a time, and sent."""

from __future__ import annotations

from math import ceil

import torch
from torch import nn

from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.sharded import UNIT, units


def shard_bytes(model: nn.Module, data: int) -> int:
    """Bytes of the largest shard of the parameters, each cut in its first dimension."""
    return sum(
        ceil(parameter.shape[0] / data) * (parameter.nbytes // parameter.shape[0])
        for parameter in map(torch.atleast_1d, model.parameters())
    )


def gathered_bytes(model: nn.Module, data: int) -> int:
    """The most bytes that are whole at a time: parameters in no unit, one unit, and the next unit in transit."""
    if data == 1:
        return 0
    unit_bytes = sorted(shard_bytes(unit, data) * data for unit in units(model, UNIT))
    return shard_bytes(model, data) * data - sum(unit_bytes) + sum(unit_bytes[-2:])


def sharded_traffic(model: nn.Module, shape: MeshShape, accumulation: int) -> int:
    """Bytes put into collectives of parameters and gradients in a step of a sharded model.

    Each pass gathers the parameters, and those of units again for the backward pass. Then the gradients are summed over
    ``data`` in shards, and the shards over the ranks of a sample.
    """
    shard = shard_bytes(model, shape.data)
    over_samples = shard if shape.spatial_size > 1 else 0
    if shape.data == 1:
        return over_samples
    whole, again = shard * shape.data, sum(shard_bytes(unit, shape.data) * shape.data for unit in units(model, UNIT))
    return accumulation * (whole + again) + whole + over_samples
