"""Spreads a model over the ranks of a mesh: samples split, activations recomputed, states sharded, gradients added."""

from __future__ import annotations

import copy

from torch import nn

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.batchnorm_group import share_batch_norm
from hpcbench.parallel.data_ranks import DataRanks
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.recompute import recompute
from hpcbench.parallel.sharded import ShardedGradients, shard_model
from hpcbench.train.ranks import Ranks


def distribute(
    application: Application, config: RunConfig, model: nn.Module, ranks: Ranks, mesh: Mesh, shared: DataRanks
) -> tuple[nn.Module, GradientReducer | ShardedGradients]:
    """Split, recompute and shard ``model`` in place; returns its shapes as a whole, and what adds its gradients."""
    parallel, group = config.parallel, ranks.group
    if not (mesh.axes or parallel.shard_states or parallel.recompute):
        if shared.processes > 1:
            share_batch_norm(model, group, shared.processes, parallel.timeout_s)
        return model, GradientReducer(model.parameters(), group, parallel.bucket_bytes)
    whole = copy.deepcopy(model).to("meta")
    if mesh.axes:
        ranks.together(lambda: application.module("parallel").parallelize(model, config, mesh))
    elif shared.processes > 1:
        share_batch_norm(model, group, shared.processes, parallel.timeout_s)
    if parallel.recompute:
        recompute(application.module("parallel").recomputed(model))
    if parallel.shard_states:
        return whole, shard_model(model, group, mesh.shape)
    return whole, GradientReducer(model.parameters(), group, parallel.bucket_bytes)
