"""Spreads a model over the ranks of a mesh: domain decomposition, activation checkpointing, sharding, reduction."""

from __future__ import annotations

import copy

import torch
from torch import nn

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.activation_checkpointing import checkpoint_activations
from hpcbench.parallel.batchnorm_group import share_batch_norm
from hpcbench.parallel.exposed import UNRECORDED, Recorder
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.sharded import ShardedGradients, shard_model
from hpcbench.parallel.simulated_ranks import DataRanks


def distribute(
    application: Application,
    config: RunConfig,
    model: nn.Module,
    group: Group,
    mesh: Mesh,
    shared: DataRanks,
    recorder: Recorder = UNRECORDED,
) -> tuple[nn.Module, GradientReducer | ShardedGradients]:
    """Split, checkpoint and shard ``model`` in place; returns the whole model's shapes, and what sums its gradients.

    ``recorder`` records the messages that a step waits for.
    """
    parallel = config.parallel
    if not (mesh.axes or parallel.shard_states or parallel.activation_checkpointing):
        if shared.processes > 1:
            share_batch_norm(model, group, shared.processes, parallel.timeout_s, recorder)
        return model, reducer(model, group, config, recorder)
    whole = copy.deepcopy(model).to("meta")
    if mesh.axes:
        group.together(lambda: application.module("parallel").parallelize(model, config, mesh))
    elif shared.processes > 1:
        share_batch_norm(model, group, shared.processes, parallel.timeout_s, recorder)
    if parallel.activation_checkpointing:
        checkpoint_activations(application.module("parallel").checkpointed_blocks(model))
    if parallel.shard_states:
        return whole, shard_model(model, group, mesh.shape, recorder=recorder)
    return whole, reducer(model, group, config, recorder)


def reducer(model: nn.Module, group: Group, config: RunConfig, recorder: Recorder) -> GradientReducer:
    """What sums the gradients of whole tensors, with the bucket size, order and number format that the run asks for."""
    parallel = config.parallel
    same_dtype = parallel.reduce_dtype == "gradient"
    return GradientReducer(
        model.parameters(), group, parallel.bucket_bytes, recorder, backward=parallel.bucket_order == "backward",
        wire_dtype=None if same_dtype else getattr(torch, parallel.reduce_dtype),
    )  # fmt: skip
