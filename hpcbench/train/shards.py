"""Training on shards: each node has a part of the training set, and its ranks train on that; all have the rest."""

from __future__ import annotations

import copy
import glob
import json
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import split_files
from hpcbench.data.sampler import Indices, Shards
from hpcbench.data.shard import Shard
from hpcbench.train.build import check_shards, open_data
from staging.errors import InputError
from staging.ledger.manifest import load_records
from staging.moving.reshuffle import ReshuffleReport, reshuffle
from staging.options import StageOptions
from staging.prepare import Prepared
from staging.ranks.together import together
from staging.ranks.world import World

if TYPE_CHECKING:
    from hpcbench.train.context import Run


class NodeShard:
    """What this node has of the training set, in ``folder``; samples keep their numbers in the whole set.

    The run's own configuration goes on naming the source, from which what needs the whole set is read.
    """

    def __init__(self, run: Run, options: StageOptions, world: World, folder: Path) -> None:
        root = Path(run.config.data.root)
        files = sample_files(run.application, run.config, run.training)
        self.options, self.world, self.folder = options, world, folder
        self.numbers = {path.relative_to(root).as_posix(): number for number, path in enumerate(files)}
        self.config = copy.deepcopy(run.config)
        self.config.data.root, self.config.data.train_samples = str(folder), None
        if options.transform:
            run.application.module("data").staged_form(self.config.data, options.transform)
        self.moved: list[ReshuffleReport] = []

    def foresee(self, run: Run, prepared: Prepared) -> None:
        """Share epochs out by the shards that a staging will make; collective.

        Raises ``InputError``, on all ranks, where they cannot be trained on.
        """
        entry = {name: entry for entry, name in enumerate(prepared.listing.names)}
        home = prepared.plan.home[[entry[name] for name in self.numbers]].astype(np.int64)
        shards = Shards(home, tuple(place.node for place in prepared.places))
        together(self.world, lambda: check_homes(run.config, shards))
        run.shards = shards
        run.cut_epoch()
        log_schedule(run)

    def read(self, run: Run) -> None:
        """Train on what lies on each node now; collective. Raises ``InputError`` on all ranks."""
        own, validation, numbers = together(self.world, lambda: self.open(run.application))
        found = self.world.all_gather((self.world.place.node, numbers))
        home = np.full(len(self.numbers), -1, np.int64)
        for node, there in found:
            home[there] = node
        assert home.min() >= 0, "staging has put every sample on a node"
        shards = Shards(home, tuple(node for node, _ in found))
        together(self.world, lambda: check_homes(run.config, shards))
        run.validation = validation
        self.use(run, shards, own, numbers)

    def open(self, application: Application) -> tuple[Any, Any, Indices]:
        """This node's training samples, the validation samples, and the numbers of the former in the whole set."""
        training, validation = open_data(application, self.config)
        records = load_records(self.folder)
        files = sample_files(application, self.config, training)
        return training, validation, self.numbers_of(files, lambda name: records[name].source)

    def numbers_of(self, files: Sequence[Path], source_of: Callable[[str], str]) -> Indices:
        """Numbers in the whole set of the samples in ``files``; ``source_of`` tells where a staged file came from."""
        names = (path.relative_to(self.folder).as_posix() for path in files)
        return np.array([self.numbers[source_of(name)] for name in names], np.int64)

    def use(self, run: Run, shards: Shards, own: Any, numbers: Indices) -> None:
        """Train on ``own``, which are the samples ``numbers`` of the whole set, while others train on theirs."""
        run.shards, run.training = shards, Shard(own, numbers, len(self.numbers))
        run.open_loaders(self.config)

    def reshuffle(self, shuffle: int) -> ReshuffleReport:
        """Move samples to the homes of draw number ``shuffle``; collective."""
        self.moved.append(reshuffle(self.options, shuffle, self.world))
        return self.moved[-1]


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


def sample_files(application: Application, config: RunConfig, training: Any) -> Sequence[Path]:
    """A file for each training sample. Raises ``InputError`` where the application does not say which."""
    files: Sequence[Path] = getattr(training, "files", None) or split_files(application, config, "train")
    if len(files) != len(training):
        raise InputError(
            f"staging.placement shard: {application.name} does not say which file a sample is in; give its dataset a "
            "list `files`, one per sample, or set staging.placement replicate"
        )
    return files


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


def check_placement(application: Application, config: RunConfig, training: Any) -> None:
    """Raise ``InputError`` where the training set cannot be sharded."""
    if config.staging.placement == "shard":
        sample_files(application, config, training)


def reshuffle_shards(run: Run) -> None:
    """Before an epoch but the first, where that is wanted: give samples other nodes; collective."""
    if run.shard is None or not run.config.staging.reshuffle or not run.state.epoch:
        return
    with run.phases.spans.span("staging"):
        report = run.shard.reshuffle(run.state.epoch)
        run.shard.read(run)
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
