"""Training on shards: each node has a part of the training set, on which its ranks train; all have the rest."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.sampler import Shards
from hpcbench.train.build import check_shards
from hpcbench.train.context import RunContext
from hpcbench.train.data_path import DataPath
from hpcbench.train.node_shard import nodes_of_places, training_files
from staging.errors import InputError
from staging.formats.regular import read_text
from staging.prepare import Prepared
from staging.ranks.collective_errors import together


def foresee_shards(run: RunContext, data: DataPath, prepared: Prepared, epoch: int) -> None:
    """Share out epochs as the shards that a staging will create require; collective. ``epoch`` epochs are finished.

    Raises ``InputError`` on all ranks if the shards cannot be trained on.
    """
    assert data.node_shard is not None
    shards = data.node_shard.foreseen(prepared)
    together(data.node_shard.world, lambda: check_homes(run.config, shards))
    data.assign_homes(shards)
    log_schedule(run, data.steps_per_epoch, epoch)


def read_shards(config: RunConfig, data: DataPath) -> None:
    """Train on the samples that each node has now; collective. Raises ``InputError`` on all ranks."""
    shard = data.node_shard
    assert shard is not None
    local, validation, numbers = together(shard.world, shard.open)
    shards = shard.present(numbers)
    together(shard.world, lambda: check_homes(config, shards))
    data.read_shard(shards, local, numbers, validation)


def check_homes(config: RunConfig, shards: Shards) -> None:
    """Raise ``InputError`` for a node without a sample, or with fewer than a step needs."""
    nodes = sorted(set(shards.node))
    idle = [node for node in nodes if not len(shards.samples_on(node))]
    if idle:
        raise InputError(
            f"staging.placement shard: the training set of {len(shards.home)} samples leaves {len(idle)} of "
            f"{len(nodes)} nodes without one; use fewer nodes or more samples, or set staging.placement replicate"
        )
    check_shards(config, shards)


def log_schedule(run: RunContext, steps_per_epoch: int, epoch: int) -> None:
    """Log what depends on the steps of an epoch: with shards their number is that of the fullest node.

    A resumed run whose shards are redrawn has already logged those of its first epoch.
    """
    if not (epoch and run.config.staging.reshuffle):
        run.log.hyperparameters(run.task.log_keys(steps_per_epoch))


def shared_patterns(names: Sequence[str], sharded: Sequence[str]) -> tuple[str, ...]:
    """Shell patterns for those of ``names`` that are not ``sharded``: whole folders where possible."""
    sharded_names = set(sharded)
    others = [name for name in names if name not in sharded_names]
    taken = {str(folder) for name in sharded_names for folder in PurePosixPath(name).parents}
    patterns: dict[str, None] = {}
    for name in others:
        folder = str(PurePosixPath(name).parent)
        patterns[glob.escape(name) if folder in taken else f"{glob.escape(folder)}/*"] = None
    return tuple(patterns)


def check_placement(
    application: Application, config: RunConfig, training: Any, nodes: Sequence[int], together: int
) -> None:
    """Raise ``InputError`` if the training set cannot be sharded.

    ``nodes`` are those of all ranks; ``together`` neighbouring ranks share their samples.
    """
    if config.staging.placement == "shard":
        training_files(application, config, training)
        if config.staging.destination:
            places_of_ranks = range(len(nodes)) if "{rank}" in config.staging.destination else nodes
            nodes_of_places(places_of_ranks, together)


def reshuffle_shards(run: RunContext, data: DataPath, epoch: int) -> None:
    """After ``epoch`` epochs, move samples to other nodes if that is wanted; collective."""
    shard = data.node_shard
    if shard is None or not run.config.staging.reshuffle or not epoch:
        return
    with run.phases.timer.span("staging"):
        report = shard.reshuffle(epoch)
        read_shards(run.config, data)
    run.log.event("reshuffle", report.seconds, epoch_num=epoch + 1, files=report.files, bytes=report.bytes)
    if run.is_first:
        totals = {
            "reshuffles": len(shard.moved),
            "reshuffle_seconds": sum(reshuffle.seconds for reshuffle in shard.moved),
            "reshuffle_bytes": sum(reshuffle.bytes for reshuffle in shard.moved),
        }
        staged = json.loads(read_text(run.folder.staging))
        run.folder.write_json("staging.json", {**staged, **totals})
