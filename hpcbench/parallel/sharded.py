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
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.shard_messages import ShardMessages

UNIT = 2**20
"""Parameters of a module that is brought together and let go by itself."""


class ShardedGradients:
    """In the place of ``GradientReducer`` where FSDP2 adds gradients, in the backward pass, over all ranks."""

    def __init__(self, model: nn.Module, messages: ShardMessages) -> None:
        assert isinstance(model, FSDPModule)
        self._model = model
        self._messages = messages

    @property
    def enabled(self) -> bool:
        """Whether the next backward pass adds gradients over ranks; only that of the last micro-batch need."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = value
        self._model.set_requires_gradient_sync(value)

    def finish(self) -> None:
        """Nothing is left after the backward pass."""

    @contextmanager
    def record_norms(self) -> Iterator[None]:
        """Inside it, norms of whole tensors, which an optimizer or clipping sums over ranks, are told as messages."""
        before = shard_message.set(self._messages.channel.message)
        try:
            yield
        finally:
            shard_message.reset(before)


def shard_model(
    model: nn.Module, group: Group, shape: MeshShape, at_least: int = UNIT, recorder: Recorder = UNRECORDED
) -> ShardedGradients:
    """Shard ``model`` in place over ``data``, copied over the spatial axes; gradients are summed over all ranks.

    The smallest modules of ``at_least`` so many parameters are units of their own. A forward and a backward pass are
    collective from now on, also where a rank has no samples. ``recorder`` is told of their messages.
    """
    ranks = torch.arange(group.world_size).view(shape.data, shape.spatial_size)
    kind = group.device.type
    if shape.spatial_size == 1:
        mesh, copies = DeviceMesh(kind, ranks.flatten(), mesh_dim_names=("data",)), None
    else:
        both = DeviceMesh(kind, ranks.t().contiguous(), mesh_dim_names=("spatial", "data"))
        mesh, copies = both["data"], both.get_group("spatial")
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()  # FSDP2 takes no other layout; activations keep theirs
    for module in [*units(model, at_least), model]:
        fully_shard(module, mesh=mesh)
    messages = ShardMessages(mesh.get_group("data"), copies, recorder, on_host=kind == "cpu")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss has the weight of its samples already. gloo knows no sum with a factor.
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
            messages.take_over(module)
    return ShardedGradients(model, messages)


def units(model: nn.Module, at_least: int) -> Iterator[nn.Module]:
    """The modules below ``model`` with at least so many parameters, none of whose children has."""
    for child in model.children():
        if size(child) >= at_least:
            if any(size(each) >= at_least for each in child.children()):
                yield from units(child, at_least)
            else:
                yield child


def size(module: nn.Module) -> int:
    """Parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def gathered(tree: Any) -> Any:
    """A state with whole tensors in the place of sharded ones; collective."""
    if isinstance(tree, DTensor):
        return tree.full_tensor()
    if isinstance(tree, dict):
        return {key: gathered(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(gathered(value) for value in tree)
    return tree


def sharded_as(value: Any, like: Tensor) -> Any:
    """What of a whole tensor this rank has where ``like`` is sharded; else, and of another shape, ``value`` itself."""
    if isinstance(like, DTensor) and isinstance(value, Tensor) and value.shape == like.shape:
        # Every rank has read the same file, so nothing needs to travel.
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return value


def sharded_optimizer_state(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """The state of an optimizer over whole parameters as that of ``optimizer``, whose parameters may be sharded."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shards = {
        number: {name: sharded_as(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": shards}
