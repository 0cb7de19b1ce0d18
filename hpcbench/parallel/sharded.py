"""Parameters, gradients and optimizer state sharded over the ranks along ``data`` (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from hpcbench.optim.tensors import shard_message
from hpcbench.parallel.exposed import UNRECORDED, Recorder
from hpcbench.parallel.gradients import zero_missing
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.shard_messages import ShardMessages

UNIT = 2**20
"""Number of parameters from which a module is gathered and freed on its own."""

WHOLE = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""Modules that take parameters of their children without calling these, so that no child can be gathered alone."""
CONTAINERS = (nn.ModuleList, nn.ModuleDict)
"""Modules that are never called, so that nothing would gather them."""


class ShardedGradients:
    """Replaces ``GradientReducer`` where FSDP2 sums gradients over all ranks, in the backward pass."""

    def __init__(self, model: nn.Module, messages: ShardMessages) -> None:
        assert isinstance(model, FSDPModule)
        self._model = model
        self._messages = messages

    @property
    def enabled(self) -> bool:
        """Whether the next backward pass sums gradients over ranks; only that of the last micro-batch needs to."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = value
        self._model.set_requires_gradient_sync(value)

    def finish(self) -> None:
        """Give zeros to parameters without a gradient; the backward pass has summed all others."""
        zero_missing(self._model.parameters())

    @contextmanager
    def record_norms(self) -> Iterator[None]:
        """Inside it, norms of whole tensors, which an optimizer or clipping sums over ranks, are recorded."""
        before = shard_message.set(self._messages.channel.message)
        try:
            yield
        finally:
            shard_message.reset(before)


def shard_model(
    model: nn.Module, group: Group, shape: MeshShape, at_least: int = UNIT, recorder: Recorder = UNRECORDED
) -> ShardedGradients:
    """Shard ``model`` in place over ``data``, with copies over the spatial axes; gradients are summed over all ranks.

    The smallest modules with ``at_least`` parameters or more are units of their own. Forward and backward passes are
    collective from now on, even on a rank without samples. ``recorder`` records their messages.
    """
    ranks = torch.arange(group.world_size).view(shape.data, shape.spatial_size)
    kind = group.device.type
    if shape.spatial_size == 1:
        mesh, copies = DeviceMesh(kind, ranks.flatten(), mesh_dim_names=("data",)), None
    else:
        both = DeviceMesh(kind, ranks.t().contiguous(), mesh_dim_names=("spatial", "data"))
        mesh, copies = both["data"], both.get_group("spatial")
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()  # FSDP2 accepts no other layout; activations keep theirs
    for module in [*units(model, at_least), model]:
        fully_shard(module, mesh=mesh)
    messages = ShardMessages(mesh.get_group("data"), copies, recorder, on_host=kind == "cpu")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is already weighted by its samples. gloo has no sum with a factor.
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
            messages.take_over(module)
    return ShardedGradients(model, messages)


def units(model: nn.Module, at_least: int) -> Iterator[nn.Module]:
    """The modules below ``model`` with ``at_least`` parameters or more, none of whose children has as many.

    A module that computes with its children's parameters itself is a unit as a whole. A container, which computes
    nothing, is none: what it holds belongs to the module around it.
    """
    for child in model.children():
        if size(child) < at_least:
            continue
        inside = any(size(grandchild) >= at_least for grandchild in child.children())
        if isinstance(child, WHOLE) or not (inside or isinstance(child, CONTAINERS)):
            yield child
        else:
            yield from units(child, at_least)


def size(module: nn.Module) -> int:
    """Parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def gathered(tree: Any) -> Any:
    """A state with whole tensors in place of sharded ones; collective."""
    if isinstance(tree, DTensor):
        return tree.full_tensor()
    if isinstance(tree, dict):
        return {key: gathered(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(gathered(value) for value in tree)
    return tree


def sharded_as(value: Any, like: Tensor) -> Any:
    """This rank's part of a whole tensor if ``like`` is sharded; otherwise, or if shapes differ, ``value`` itself."""
    if isinstance(like, DTensor) and isinstance(value, Tensor) and value.shape == like.shape:
        # Every rank has read the same file, so nothing needs to travel.
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return value


def sharded_optimizer_state(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """Convert an optimizer state over whole parameters to one for ``optimizer``, whose parameters may be sharded."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shards = {
        number: {name: sharded_as(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": shards}
