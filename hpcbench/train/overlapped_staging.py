"""Trains on samples as they land: the first epoch reads them while a concurrent staging brings them.

The dataset is listed as it will be, so that each sample has the number, and each epoch the order, that it would have
after the staging. Shared files are read from the source, which all ranks see.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import files_of_split
from hpcbench.data.sampler import Shards, epoch_order
from hpcbench.train.background_staging import ArrivingSamples, BackgroundStaging
from hpcbench.train.build import open_data
from hpcbench.train.context import RunContext
from hpcbench.train.data_path import DataPath
from staging.errors import InputError
from staging.files import coming
from staging.prepare import Prepared, arrival_order_of
from staging.ranks.collective_errors import together


def begin(run: RunContext, data: DataPath, prepared: Prepared, epoch: int) -> None:
    """Start staging, and train on samples as they land; collective. Raises ``InputError`` if that cannot work.

    ``epoch`` epochs are finished.
    """
    source_of = prepared.sources_here()
    node_shard = data.node_shard
    config = data.staged_config(prepared.destination) if node_shard is None else node_shard.config
    training, parts = together(prepared.world, lambda: open_ahead(run.application, config, list(source_of)))
    names = arrival_order(run, data, parts, source_of, epoch + 1)
    prepared.arrival_order = arrival_order_of(prepared.listing, list(dict.fromkeys([*names, *prepared.listing.names])))
    lacking = {prepared.listing.names[int(entry)] for entry in np.flatnonzero(prepared.wanted)}
    paths = [[prepared.destination / name for name in names] for names in parts]
    awaited = (prepared.destination / name for names in parts for name in names if source_of[name] in lacking)
    background = BackgroundStaging(prepared, awaited, run.watcher)
    data.background_began(background)
    samples: Any = ArrivingSamples(training, paths, background)
    background.files_of = paths
    if node_shard is not None and data.shards is not None:
        numbers = node_shard.numbers_of(training.files, lambda name: source_of[name])
        data.read_shard(data.shards, samples, numbers)
        samples = data.training
        background.files_of = samples.also(paths)
    data.read_arriving(samples)


def open_ahead(application: Application, config: RunConfig, names: list[str]) -> tuple[Any, list[list[str]]]:
    """The training samples below ``data.root`` once ``names`` are there, and the names of the files of each.

    Raises ``InputError`` if the application needs more than names to list its samples.
    """
    with coming(Path(config.data.root), names):
        try:
            training, _ = open_data(application, config)
        except (InputError, OSError) as error:
            raise InputError(
                f"staging.overlap: {application.name} cannot list samples that are yet to come ({error}); list them "
                "with staging.files.list_samples, or set staging.overlap false"
            ) from None
        return training, files_of_samples(application, config, training)


def files_of_samples(application: Application, config: RunConfig, training: Any) -> list[list[str]]:
    """The files of each training sample, relative to ``data.root``. Raises ``InputError`` if that is not known."""
    root, number = Path(config.data.root), len(training)
    names = [path.relative_to(root).as_posix() for path in files_of_split(application, config, "train")]
    files_per_sample = len(names) // number if number else 0
    parts = [names[start : start + files_per_sample] for start in range(0, len(names), max(files_per_sample, 1))]
    files = [path.relative_to(root).as_posix() for path in getattr(training, "files", [])]
    part_of = {name: number for number, part in enumerate(parts) for name in part}
    part_numbers = [part_of.get(file, -1) for file in files]  # both are sorted, but not by the same part of their names
    if sorted(part_numbers) != list(range(len(parts))):
        raise InputError(
            f"staging.overlap: {application.name} does not say which files a sample is in; give its dataset a list "
            "`files`, one per sample, or set staging.overlap false"
        )
    return [parts[number] for number in part_numbers]


def arrival_order(
    run: RunContext, data: DataPath, parts: list[list[str]], source_of: dict[str, str], epoch: int
) -> Iterable[str]:
    """Source names of the files of all training samples, in the order in which the epoch uses them."""
    if data.node_shard is None or data.shards is None:
        order = epoch_order(len(parts), run.seed, epoch)
        return (source_of[name] for index in order for name in parts[int(index)])
    sources = files_of_samples(run.application, run.config, data.training)
    return (name for number in order_of_shards(data.shards, run.seed, epoch) for name in sources[number])


def order_of_shards(shards: Shards, seed: int, epoch: int) -> Iterable[int]:
    """Numbers of all samples: the first of each node, then the second of each, and so on."""
    nodes = sorted(set(shards.node))
    samples_by_node = [(node, shards.samples_on(node)) for node in nodes]
    orders = [numbers[epoch_order(len(numbers), seed, epoch, node)].tolist() for node, numbers in samples_by_node]
    return (number for row in zip_longest(*orders) for number in row if number is not None)
