"""Messages of a training step of one rank, counted from shapes: gradients, sharded states, halos and batch norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.application import Application
from hpcbench.characterisation.model import Link, Message
from hpcbench.config.schema import RunConfig
from hpcbench.optim.tensors import DEVICE_BUCKET, HAS_TRITON, UNBOUNDED, buckets, norm_dtype
from hpcbench.parallel.gradients import bucket_sizes
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.planning.counting import Traffic, on_processor


@dataclass(frozen=True)
class Links:
    """Which links the messages of a run cross."""

    slowest: Link = "none"
    """The slowest among all ranks; ``none`` for a single rank."""
    ranks_per_node: int | None = None
    """Unset where nodes have different numbers of ranks, or there is one node."""

    def among(self, neighbours: int) -> Link:
        """The slowest link among each ``neighbours`` ranks that follow each other, from the first one on."""
        within = self.ranks_per_node is not None and self.ranks_per_node % neighbours == 0
        return "within a node" if within and self.slowest == "between nodes" else self.slowest


def gradient_messages(
    application: Application, model: nn.Module, config: RunConfig, shape: MeshShape, links: Links
) -> list[Message]:  # fmt: skip
    """The sums of gradients of a step; for sharded states, gathers, scatters and sums, of norms, too.

    ``model`` is whole, on the meta device.
    """
    parallel = config.parallel
    if parallel.shard_states:
        return sharded_messages(application, model, config, shape, links)
    parameters = list(model.parameters())
    # In the other order, other gradients share a bucket.
    ordered = parameters if parallel.bucket_order == "backward" else parameters[::-1]
    sizes = bucket_sizes(ordered, parallel.bucket_bytes)
    size = sum(sizes)
    if parallel.reduce_dtype != "gradient":
        size = size // parameters[0].itemsize * int(getattr(torch, parallel.reduce_dtype).itemsize)
    return [Message("gradients", "all_reduce", links.slowest, len(sizes), size)]


def sharded_messages(
    application: Application, model: nn.Module, config: RunConfig, shape: MeshShape, links: Links
) -> list[Message]:  # fmt: skip
    """Gathers of parameters, scatters of gradients, and sums of their parts and of norms; all as of sharded states.

    Each pass gathers all parameters, and those of units once more for the backward pass. After the last pass the
    gradients are summed over ``data`` in shards, and the shards over the ranks that share samples.
    """
    from hpcbench.parallel.sharded import UNIT, units
    from hpcbench.planning.sharded_bytes import shard_bytes

    found, shard = list(units(model, UNIT)), shard_bytes(model, shape.data)
    in_units = {parameter for unit in found for parameter in unit.parameters()}
    others = int(any(parameter not in in_units for parameter in model.parameters()))
    again = sum(shard_bytes(unit, shape.data) for unit in found)
    passes, sums = config.train.accumulation, len(found) + others
    messages = []
    if shape.data > 1:
        gathered = passes * (shard + again) * shape.data
        messages = [
            Message("sharding", "all_gather", links.slowest, passes * (sums + len(found)), gathered),
            Message("sharding", "reduce_scatter", links.slowest, sums, shard * shape.data),
        ]
    if shape.spatial_size > 1:
        messages.append(Message("sharding", "all_reduce", links.among(shape.spatial_size), sums, shard))
    norms = list(norm_sizes(application, model, config)) if shape.data > 1 else []
    if norms:
        messages.append(Message("sharding", "all_reduce", links.slowest, len(norms), sum(norms)))
    return messages


def norm_sizes(application: Application, model: nn.Module, config: RunConfig) -> Iterator[int]:
    """Bytes of each sum of squares over the shards in an update of ``model``.

    Clipping sums one number of each bucket of parameters, and LARS and LAMB two of each layer, weights and updates.
    """
    from hpcbench.optim.layerwise import LayerwiseOptimizer
    from hpcbench.optim.registry import clipping_outside, create_optimizer, parameter_kinds

    width = norm_dtype(next(model.parameters())).itemsize
    if clipping_outside(config.optim):
        yield from [width] * len(bucket_layers(list(model.parameters()), DEVICE_BUCKET))
    groups = application.module("task").build_task(config).parameter_groups(model)
    optimizer = create_optimizer(config.optim, groups, "cpu", kinds=parameter_kinds(model))
    if not isinstance(optimizer, LayerwiseOptimizer):
        return
    most = UNBOUNDED if HAS_TRITON and not on_processor(config) else DEVICE_BUCKET
    layers = [(group, bucket_layers(group["params"], most)) for group in optimizer.param_groups]
    if any(group["max_grad_norm"] for group, _ in layers):
        yield from [width] * sum(len(numbers) for _, numbers in layers)
    for group, numbers in layers:
        if adapts(optimizer, group):
            yield from (2 * width * number for number in numbers)


def bucket_layers(parameters: Sequence[Tensor], most: int) -> list[int]:
    """Layers in each of the buckets that a step updates together, of at most ``most`` elements of sharded tensors."""
    return [len(parameters[part]) for part in buckets(parameters, lambda parameter: most)]


def adapts(optimizer: Any, group: dict[str, Any]) -> bool:
    """Whether the layers of a group have trust ratios."""
    from hpcbench.optim import lamb

    return lamb.adapts(group) if isinstance(optimizer, lamb.LAMB) else bool(group["adapt"])


def shared_messages(traffic: Traffic, passes: int, shape: MeshShape, config: RunConfig, links: Links) -> list[Message]:
    """Halos of samples that ranks share, and sums over ranks that share batch norm statistics."""
    messages = []
    if traffic.forward + traffic.backward:
        size, link = passes * (traffic.forward + traffic.backward), links.among(shape.spatial_size)
        messages.append(Message("halo", "exchange", link, passes * traffic.messages, size, fixed=False))
    if traffic.sums:
        link = links.among(shape.spatial_size * config.train.batchnorm_group_size)
        messages.append(Message("batch_norm", "all_reduce", link, passes * traffic.summed, passes * traffic.sums))
    return messages
