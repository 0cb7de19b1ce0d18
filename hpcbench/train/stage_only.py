"""Stages what a run would stage, reports the figures, and ends: measures staging without training."""

from __future__ import annotations

import os

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.train.build import open_data
from hpcbench.train.dataset_staging import check_transform, names, of_this_node, options_of, world_of
from hpcbench.train.ranks import connect_ranks
from hpcbench.train.shard_staging import check_placement
from hpcbench.train.slab_staging import check_slabs
from staging.errors import InputError
from staging.ranks.launch import detect
from staging.ranks.signals import Interrupts
from staging.stage import stage


def stage_only(application: Application, config: RunConfig, interrupts: Interrupts) -> int:
    """Stage the run's dataset to every node, print the figures, and return the exit code.

    ``interrupts`` must be entered. Raises ``InputError`` on all ranks for bad input, and if ``staging.destination`` is
    not set.
    """
    with connect_ranks(detect(os.environ), config) as ranks:
        ranks.together(lambda: check(application, config))
        training, _ = ranks.together(lambda: open_data(application, config))
        shape = ranks.together(lambda: mesh_shape(ranks.launch.world_size, config.parallel.spatial))
        nodes = ranks.group.all_gather_object(ranks.launch.node_rank)
        ranks.together(lambda: check_placement(application, config, training, nodes, shape.spatial_size))
        if config.staging.slabs:
            task = ranks.together(lambda: application.module("task").build_task(config))
            ranks.together(lambda: check_slabs(application, config, shape, task))
        world = world_of(ranks.group, config.staging.destination)
        seed = config.train.seed or 0  # which draws nothing where none is needed
        options = ranks.together(lambda: options_of(application, config, seed))
        options, _ = of_this_node(options, application, config, shape, training, world)
        report = stage(options, world, names(application, config), watcher=ranks.watcher)
        if ranks.launch.rank == 0:
            print(report.table())
    return 0


def check(application: Application, config: RunConfig) -> None:
    """Raise ``InputError`` if there is no destination, no such transform, or no seed that a run could share."""
    if not config.staging.destination:
        raise InputError("--stage-only needs --staging.destination DIR, a folder on each node")
    if config.staging.placement == "shard" and config.train.seed is None:
        raise InputError("--stage-only needs --seed N for shards, which only a run of the same seed takes")
    check_transform(application, config)
