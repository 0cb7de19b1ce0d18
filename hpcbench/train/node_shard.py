"""A node's part of the training set: its files, their numbers in the whole set, and their moves to other nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import files_of_split
from hpcbench.data.sampler import Indices, Shards
from hpcbench.train.build import open_data
from staging.errors import InputError
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.prepare import Prepared
from staging.ranks.world import World
from staging.reshuffle import ReshuffleReport, reshuffle


class NodeShard:
    """This node's part of ``training``, in ``folder``; samples keep their numbers in the whole set.

    ``config`` is the run's and still names the source, for the code that reads the whole set; the shard has its own
    copy that names ``folder``. ``together`` neighbouring ranks share their samples.
    """

    def __init__(
        self, application: Application, config: RunConfig, training: Any, options: StageOptions, world: World,
        folder: Path, together: int = 1,
    ) -> None:  # fmt: skip
        root = Path(config.data.root)
        files = training_files(application, config, training)
        self.application, self.options, self.world, self.folder = application, options, world, folder
        self.together = together
        self.numbers = {path.relative_to(root).as_posix(): number for number, path in enumerate(files)}
        self.config = copy.deepcopy(config)
        self.config.data.root, self.config.data.train_samples = str(folder), None
        if options.transform:
            application.module("data").staged_form(self.config.data, options.transform)
        self.moved: list[ReshuffleReport] = []

    def foreseen(self, prepared: Prepared) -> Shards:
        """The shards that a staging will create."""
        entry = {name: entry for entry, name in enumerate(prepared.listing.names)}
        home = prepared.plan.home[[entry[name] for name in self.numbers]].astype(np.int64)
        return Shards(home, nodes_of_places([place.node for place in prepared.places], self.together))

    def present(self, numbers: Indices) -> Shards:
        """The shards of all nodes, from the samples that each has; collective."""
        samples_by_rank = self.world.all_gather((self.world.place.node, numbers))
        home = np.full(len(self.numbers), -1, np.int64)
        for node, there in samples_by_rank:
            home[there] = node
        assert home.min() >= 0, "staging has put every sample on a node"
        return Shards(home, nodes_of_places([node for node, _ in samples_by_rank], self.together))

    def open(self) -> tuple[Any, Any, Indices]:
        """This node's training samples, the validation samples, and the numbers of the former in the whole set."""
        training, validation = open_data(self.application, self.config)
        records = load_records(self.folder)
        files = training_files(self.application, self.config, training)
        return training, validation, self.numbers_of(files, lambda name: records[name].source)

    def numbers_of(self, files: Sequence[Path], source_of: Callable[[str], str]) -> Indices:
        """Numbers in the whole set of the samples in ``files``; ``source_of`` says where a staged file came from."""
        names = (path.relative_to(self.folder).as_posix() for path in files)
        return np.array([self.numbers[source_of(name)] for name in names], np.int64)

    def reshuffle(self, shuffle: int) -> ReshuffleReport:
        """Move samples to the homes of draw number ``shuffle``; collective."""
        self.moved.append(reshuffle(self.options, shuffle, self.world))
        return self.moved[-1]


def nodes_of_places(nodes: Sequence[int], together: int) -> tuple[int, ...]:
    """The node of every ``together`` neighbouring ranks, from those of all ranks. Raises ``InputError`` for several."""
    for first in range(0, len(nodes), together):
        last = first + together - 1
        if len(set(nodes[first : last + 1])) > 1:
            raise InputError(
                f"staging.placement shard: ranks {first} to {last} share samples (parallel.spatial) but not a node; "
                f"start a multiple of {together} ranks on each node, in order, or set staging.placement replicate"
            )
    return tuple(nodes[::together])


def training_files(application: Application, config: RunConfig, training: Any) -> Sequence[Path]:
    """A file for each training sample. Raises ``InputError`` if the application does not say which."""
    files: Sequence[Path] = getattr(training, "files", None) or files_of_split(application, config, "train")
    if len(files) != len(training):
        raise InputError(
            f"staging.placement shard: {application.name} does not say which file a sample is in; give its dataset a "
            "list `files`, one per sample, or set staging.placement replicate"
        )
    return files
