"""Training on shards: each node has a part of the training set, and its ranks train on that; all have the rest."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.sampler import Indices, Shards
from hpcbench.data.shard import Shard
from hpcbench.train.build import check_shards
from hpcbench.train.node_shard import nodes_of_places, sample_files
from staging.errors import InputError
from staging.prepare import Prepared
from staging.ranks.together import together

if TYPE_CHECKING:
    from hpcbench.train.context import Run


def foresee_shards(run: Run, prepared: Prepared) -> None:
    """Share epochs out by the shards that a staging will make; collective.

    Raises ``InputError``, on all ranks, where they cannot be trained on.
    """
    assert run.shard is not None
    shards = run.shard.foreseen(prepared)
    together(run.shard.world, lambda: check_homes(run.config, shards))
    run.shards = shards
    run.cut_epoch()
    log_schedule(run)


def read_shards(run: Run) -> None:
    """Train on what lies on each node now; collective. Raises ``InputError`` on all ranks."""
    shard = run.shard
    assert shard is not None
    own, validation, numbers = together(shard.world, shard.open)
    shards = shard.present(numbers)
    together(shard.world, lambda: check_homes(run.config, shards))
    run.validation = validation
    use_shards(run, shards, own, numbers)


def use_shards(run: Run, shards: Shards, own: Any, numbers: Indices) -> None:
    """Train on ``own``, which are the samples ``numbers`` of the whole set, while other nodes train on theirs."""
    assert run.shard is not None
    run.shards, run.training = shards, Shard(own, numbers, len(run.shard.numbers))
    run.open_loaders(run.shard.config)


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


def log_schedule(run: Run) -> None:
    """Log what depends on the steps of an epoch: with shards their number is that of the fullest node.

    A resumed run whose shards are drawn anew has logged those of its first epoch.
    """
    if not (run.state.epoch and run.config.staging.reshuffle):
        run.log.hyperparameters(run.task.log_keys(run.steps_per_epoch))


def shared_patterns(names: Sequence[str], sharded: Sequence[str]) -> tuple[str, ...]:
    """Shell patterns that match those of ``names`` that are not ``sharded``: whole folders where they can."""
    own = set(sharded)
    others = [name for name in names if name not in own]
    taken = {str(folder) for name in own for folder in PurePosixPath(name).parents}
    patterns: dict[str, None] = {}
    for name in others:
        folder = str(PurePosixPath(name).parent)
        patterns[glob.escape(name) if folder in taken else f"{glob.escape(folder)}/*"] = None
    return tuple(patterns)


def check_placement(
    application: Application, config: RunConfig, training: Any, nodes: Sequence[int], together: int
) -> None:
    """Raise ``InputError`` where the training set cannot be sharded.

    ``nodes`` are those of all ranks, of which ``together`` neighbouring ones share their samples.
    """
    if config.staging.placement == "shard":
        sample_files(application, config, training)
        if config.staging.destination:
            each = range(len(nodes)) if "{rank}" in config.staging.destination else nodes
            nodes_of_places(each, together)


def reshuffle_shards(run: Run) -> None:
    """Before an epoch but the first, where that is wanted: give samples other nodes; collective."""
    if run.shard is None or not run.config.staging.reshuffle or not run.state.epoch:
        return
    with run.phases.spans.span("staging"):
        report = run.shard.reshuffle(run.state.epoch)
        read_shards(run)
    run.log.event("reshuffle", report.seconds, epoch_num=run.state.epoch + 1, files=report.files, bytes=report.bytes)
    if run.is_first:
        moved = run.shard.moved
        totals = {
            "reshuffles": len(moved),
            "reshuffle_seconds": sum(each.seconds for each in moved),
            "reshuffle_bytes": sum(each.bytes for each in moved),
        }
        staged = json.loads(run.folder.staging.read_text(encoding="utf-8"))
        run.folder.write_json("staging.json", {**staged, **totals})
