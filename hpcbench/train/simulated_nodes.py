"""Shards on simulated nodes: samples get the homes that a staging would give them, while no data move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpcbench.config.schema import RunConfig
from hpcbench.data.sampler import Indices, Shards
from hpcbench.parallel.simulated_ranks import deal_to_nodes
from hpcbench.parallel.staging_world import staging_world
from hpcbench.train.context import RunContext
from hpcbench.train.data_path import DataPath
from hpcbench.train.dataset_staging import names, options_of
from hpcbench.train.node_shard import training_files
from hpcbench.train.shard_staging import check_homes, log_schedule
from staging.counters import Counters
from staging.open_source import open_source
from staging.planning.plan import make_plan
from staging.prepare import sample_groups, settled
from staging.ranks.collective_errors import together
from staging.ranks.world import World


def places_without_moving(config: RunConfig) -> bool:
    """Whether samples have homes on nodes only to decide the order in which the ranks take them."""
    return config.staging.placement == "shard" and not config.staging.destination


def draw_homes(run: RunContext, data: DataPath, epoch: int) -> None:
    """After ``epoch`` epochs, give the samples their homes if the run has simulated shards; collective.

    The homes are those of a staging before the first epoch and, with ``staging.reshuffle``, of a new draw before each
    later epoch. Raises ``InputError`` on all ranks for shards that cannot be trained on.
    """
    if not places_without_moving(run.config) or (data.shards is not None and not run.config.staging.reshuffle):
        return
    world, nodes = staging_world(run.group), run.config.parallel.simulated_nodes or 1
    homes = drawn_homes(run, data.training, epoch, world, nodes)
    shards = Shards(homes, tuple(deal_to_nodes(run.data_ranks.total, nodes)))
    together(world, lambda: check_homes(run.config, shards))
    first = data.shards is None
    data.assign_homes(shards)
    if first:
        log_schedule(run, data.steps_per_epoch, epoch)


def drawn_homes(run: RunContext, training: Any, epoch: int, world: World, nodes: int) -> Indices:
    """The node of each training sample by the plan of a staging; collective."""
    options = settled(options_of(run.application, run.config, run.seed, epoch))
    listing = open_source(options, world, Counters(), names(run.application, run.config)).listing
    plan = make_plan(
        listing, nodes, [1] * nodes, "shard", "direct", options.seed, group_by=sample_groups(options.source),
        shuffle=options.shuffle, replicate_also=options.replicate_also, contiguous=options.contiguous,
    )  # fmt: skip
    entry, root = {name: number for number, name in enumerate(listing.names)}, Path(run.config.data.root)
    files = training_files(run.application, run.config, training)
    return plan.home[[entry[path.relative_to(root).as_posix()] for path in files]].astype(np.int64)
