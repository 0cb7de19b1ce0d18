"""Refuses, before anything is written, a mesh that the model or another part of the run cannot work with."""

from __future__ import annotations

import torch

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.mesh import EmptyPeers, Mesh, empty_axes
from hpcbench.parallel.mesh_shape import MeshShape, check_axes
from staging.errors import InputError

FSDP_METHODS = (
    "set_requires_gradient_sync", "set_gradient_divide_factor", "set_custom_all_gather", "set_custom_reduce_scatter",
    "set_all_reduce_hook", "set_force_sum_reduction_for_comms",
)  # fmt: skip
"""Methods of FSDP2 that sharding needs, of which the oldest torch that the rest works with has few."""


def check_mesh(application: Application, config: RunConfig, shape: MeshShape, rank: int) -> None:
    """Raise ``InputError`` if samples cannot be split, or states sharded, as asked; tries it on shapes alone."""
    check_split(application, config, shape)
    check_sharding(config, shape)
    if shape.spatial_size > 1:
        with torch.device("meta"):
            model = application.module("model").build_model(config)
        peers = EmptyPeers(rank % shape.spatial_size, shape.spatial_size)
        mesh = Mesh(shape, rank, empty_axes(shape, rank), peers)
        application.module("parallel").parallelize(model, config, mesh)


def check_sharding(config: RunConfig, shape: MeshShape) -> None:
    """Refuse sharded states if there is nothing to shard over, or if a part of the run needs whole ones."""
    if not config.parallel.shard_states:
        return
    if shape.data == 1:
        raise InputError(
            f"parallel.shard_states shards over the ranks with samples of their own, of which {shape.words} "
            "(data x spatial) has one; start more ranks, or set it false"
        )
    if config.train.compile:
        raise InputError("train.compile (True) needs whole parameters; set it False, or parallel.shard_states false")
    if config.train.precision == "16-mixed":
        raise InputError("train.precision 16-mixed scales whole gradients; take bf16-mixed with parallel.shard_states")
    from torch.distributed.fsdp import FSDPModule

    if missing := [name for name in FSDP_METHODS if not hasattr(FSDPModule, name)]:
        raise InputError(
            f"parallel.shard_states needs a newer torch than {torch.__version__}, whose FSDP2 lacks {missing[0]}; "
            "install one, or set it false"
        )


def check_split(application: Application, config: RunConfig, shape: MeshShape) -> None:
    """Raise ``InputError`` for spatial parallelism or activation checkpointing that the application does not allow."""
    asked = (
        "parallel.activation_checkpointing"
        if shape.spatial_size == 1
        else f"parallel.spatial {config.parallel.spatial}"
    )
    if (shape.spatial_size > 1 or config.parallel.activation_checkpointing) and not application.has("parallel"):
        raise InputError(
            f"{application.name} has no module `parallel` that knows the parts of its model; {asked} needs it"
        )
    if application.has("shapes"):
        inputs, _ = application.module("shapes").batch_shapes(config, 1)
        check_axes(config.parallel.spatial, inputs.dim() - 2)
