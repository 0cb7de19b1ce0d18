"""How a run reads its data: the two splits, their loaders, this node's part of them, and the batches of an epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hpcbench.config.schema import RunConfig
from hpcbench.data.device_prefetch import DevicePrefetcher
from hpcbench.data.files import dataset_files
from hpcbench.data.loader import BatchLoader, Loader, default_workers, open_loader
from hpcbench.data.sampler import Indices, Shards, epoch_batches, epoch_sizes, in_passes, rank_share
from hpcbench.data.shard import Shard, some_sample
from hpcbench.parallel.spatial.extents import Extent
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.train.background_staging import BackgroundStaging
from hpcbench.train.build import open_data
from hpcbench.train.context import RunContext
from hpcbench.train.node_shard import NodeShard
from staging.first_reads import FirstReads


class Batch(NamedTuple):
    """A micro-batch on the device."""

    inputs: Tensor
    targets: Tensor
    indices: Tensor
    """Indices of the samples in the training set, on the host."""


class DataPath:
    """The training and validation samples of a run, as this rank currently reads them.

    They come from ``config.data.root``, which changes once the dataset is staged.
    """

    def __init__(self, run: RunContext, training: Any, validation: Any) -> None:
        self.run = run
        self.config = run.config
        """Names the place and form of the dataset; if nodes have parts of it, those of the whole at the source."""
        self.training, self.validation = training, validation
        self.background: BackgroundStaging | None = None
        """The staging in progress while the run trains."""
        self.node_shard: NodeShard | None = None
        """This node's part of the training set, if it does not have all of it."""
        self.shards: Shards | None = None
        """The parts of all nodes."""
        self.slab: Extent | None = None
        """The rows of every sample that this node has staged, if it does not have all of them."""
        asked = run.config.data.workers
        self.workers = default_workers(run.threads) if asked is None else asked
        # Reader processes have pinned their batches; those that this process reads itself are pinned here.
        self.prefetcher = DevicePrefetcher(run.device, pin=True, device_wait=run.phases.device_wait)
        self.training_loader: Loader
        self.validation_loader: Loader
        self.first_reads: FirstReads | None = None
        """Compares what is read of staged files for the first time; ``None`` if that is not wanted."""
        self._loaders: list[Loader] = []
        self.open_loaders()

    def files(self) -> list[Path]:
        """Every file that the run reads: those that all samples share, then training and validation samples."""
        return dataset_files(self.run.application, self.config)

    def read_staged_copy(self, root: Path) -> None:
        """Read the whole dataset from the folder that it was staged to, in the form that the transform gave it."""
        self.config = self.staged_config(root)
        self.training, self.validation = open_data(self.run.application, self.config)
        self.open_loaders()

    def read_staged_rows(self, root: Path) -> None:
        """Train on the rows of samples that are in ``root``; what needs whole samples reads the source."""
        config = self.staged_config(root)
        training, validation = open_data(self.run.application, config)
        self.open_loaders(config, training, validation, self.slab)

    def expect_rows(self, rows: Extent | None) -> None:
        """This node stages ``rows`` of every sample; ``None`` if it stages all of them."""
        self.slab = rows

    def expect_shard(self, node_shard: NodeShard) -> None:
        """This node stages a part of the training set."""
        self.node_shard = node_shard

    def assign_homes(self, shards: Shards) -> None:
        """Every training sample has its node in ``shards``; an epoch is shared out accordingly."""
        self.shards = shards
        self.share_out_epoch()

    def read_shard(self, shards: Shards, local: Any, numbers: Indices, validation: Any = None) -> None:
        """Train on ``local``, the samples ``numbers`` of the whole set, while other nodes train on theirs.

        ``validation`` replaces the validation samples if they were staged too.
        """
        assert self.node_shard is not None
        self.shards, self.training = shards, Shard(local, numbers, len(self.node_shard.numbers))
        if validation is not None:
            self.validation = validation
        self.open_loaders(self.node_shard.config)

    def background_began(self, background: BackgroundStaging) -> None:
        """A staging is in progress while the run trains, until ``background_ended``."""
        self.background = background

    def read_arriving(self, samples: Any) -> None:
        """Train on ``samples`` as the staging in progress brings them."""
        # Without worker processes, so that the wait can be measured; an epoch that waits for data has no use for
        # more readers.
        self.training_loader = BatchLoader(samples, 0, pin=False)

    def background_ended(self) -> None:
        """The staging during training is over, and its copy is being read."""
        self.background = None

    def staged_config(self, root: Path) -> RunConfig:
        """The run's configuration for reading what a staging leaves in ``root``."""
        config = copy.deepcopy(self.run.config)
        config.data.root = str(root)
        if config.staging.transform:
            self.run.application.module("data").staged_form(config.data, config.staging.transform)
        return config

    def open_loaders(
        self, config: RunConfig | None = None, training: Any = None, validation: Any = None,
        stored: Extent | None = None,
    ) -> None:  # fmt: skip
        """A loader for each split, of files that ``config`` names; processes or threads start when first needed.

        Of samples that ranks share, it reads this rank's part if the task prepares parts; ``stored`` as in ``part_of``.
        """
        run, config = self.run, config or self.config
        self.first_reads = first_reads = FirstReads(Path(config.data.root)) if config.data.check_staged else None
        if config.data.loader == "dali" and first_reads is not None and first_reads.applies and run.is_first:
            run.console.say(
                "DALI does not compare what was staged with its checksums; `hpcbench stage --verify-only` does"
            )

        def opened(split: str, samples: Any) -> Loader:
            axes = run.mesh.axes if run.task.reads_parts(split == "train") else {}
            return open_loader(
                run.application, config, split, samples, self.workers, run.device, axes, stored, first_reads
            )

        self._close_loaders()
        self.training_loader = opened("train", self.training if training is None else training)
        self.validation_loader = opened("validation", self.validation if validation is None else validation)
        self._loaders = [self.training_loader, self.validation_loader]
        self.share_out_epoch()

    def close(self) -> None:
        """Stop the processes that read ahead, and a staging that is still in progress."""
        if self.background is not None:
            self.background.close()
        self._close_loaders()

    def _close_loaders(self) -> None:
        for loader in self._loaders:
            loader.close()

    def share_out_epoch(self) -> None:
        """Assign the samples of an epoch to micro-batches, as the shards require."""
        ranks, train, last = self.run.data_ranks.total, self.run.config.train, self.run.config.data.last_batch
        sizes = epoch_sizes(len(self.training), ranks, train.local_batch_size, last, self.shards)
        self.micro_batches = len(sizes) * self.run.data_ranks.passes
        """Micro-batches of an epoch, the same number on every rank; those of each simulated rank count separately."""
        self.step_sizes = [
            sum(sizes[start : start + train.accumulation]) for start in range(0, len(sizes), train.accumulation)
        ]
        """Samples of every optimizer step of an epoch, over all ranks."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch."""
        return len(self.step_sizes)

    def batch_sizes(self) -> set[int]:
        """Sizes of the micro-batches of this rank, including 0 if it has some without a sample."""
        return {len(indices) for indices in self.batches_of_epoch(1)}

    def evaluation_batch_sizes(self) -> set[int]:
        """Sizes of the batches of this rank in an evaluation, including 0 if it takes part without a sample."""
        return {len(batch) for batch in self.evaluation_shares()}

    def batches_of_epoch(self, epoch: int) -> list[Indices]:
        """The samples of each micro-batch of this rank in an epoch, in order.

        The micro-batches alternate between simulated ranks, or groups of them that share batch-norm statistics.
        """
        run, ranks = self.run, self.run.data_ranks
        of_ranks = epoch_batches(
            len(self.training), run.seed, epoch, ranks.local, ranks.total, run.config.train.local_batch_size,
            run.config.data.last_batch, self.shards,
        )  # fmt: skip
        return in_passes(of_ranks, ranks.joined)

    def training_batches(
        self, epoch: int, done: int = 0, before_step: Callable[[list[Indices]], None] | None = None
    ) -> Iterator[Batch]:
        """The micro-batches of this rank in an epoch after the first ``done``, on the device.

        ``before_step`` is called with the samples of each step before the first of them is read.
        """
        run, batches = self.run, self.batches_of_epoch(epoch)[done:]
        loaded = self.prefetcher(self.training_loader.load(batches))
        for number, indices in enumerate(batches):
            if before_step is not None and number % run.passes_per_step == 0:
                before_step(batches[number : number + run.passes_per_step])
            with run.phases.phase("input_wait"):
                inputs, targets = next(loaded)
            yield Batch(inputs, targets, torch.from_numpy(indices))

    def files_of_step(self, step: list[Indices]) -> Iterator[Path]:
        """Files that a step reads of a dataset in staging; where it has no sample, it reads another one."""
        assert self.background is not None
        for indices in step:
            for index in indices if len(indices) else [some_sample(self.training)]:
                yield from self.background.files_of[int(index)]

    @property
    def evaluation_batch_size(self) -> int:
        """Samples of a rank's batch in evaluation."""
        train = self.run.config.train
        return train.eval_batch_size or train.local_batch_size

    @property
    def evaluation_batches(self) -> int:
        """Batches of an evaluation on the rank that has the most."""
        longest = -(-len(self.validation) // self.run.mesh.shape.data)
        return -(-longest // self.evaluation_batch_size)

    def validation_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's share of the validation set on the device, in order: inputs and targets."""
        loaded = self.prefetcher(self.validation_loader.load(self.evaluation_shares()))
        return ((inputs, targets) for inputs, targets in loaded)

    def evaluation_shares(self) -> list[Indices]:
        """The samples of each batch of this rank in an evaluation, in order."""
        run, size, ranks = self.run, self.evaluation_batch_size, self.run.mesh.shape.data
        share = rank_share(len(self.validation), run.mesh.data_rank, ranks)
        # Passes with sharded parameters involve all ranks: those with fewer samples run as many, some without samples.
        longest = -(-len(self.validation) // ranks) if run.config.parallel.shard_states else len(share)
        return [share[start : start + size] for start in range(0, longest, size)]

    def first_batch(self) -> tuple[Tensor, Tensor]:
        """The first training sample as the model sees it: input (1, ...) and target (1, ...).

        Raises ``InputError`` if it cannot be read, or is not what was staged.
        """
        reader = BatchLoader(self.training, 0, pin=False, first_reads=self.first_reads).reader
        inputs, targets = reader.read(np.array([some_sample(self.training)]))
        prepared, target = self.run.task.prepare(self.to_device(inputs), self.to_device(targets), None)
        return self.run.precision.as_input(prepared), target

    def to_device(self, tensor: Tensor) -> Tensor:
        """Move a batch to the device without waiting for it."""
        return tensor.to(self.run.device, non_blocking=True)

    def local_part(self, prepared: Tensor, loader: Loader) -> Tensor:
        """This rank's part of prepared inputs: all of them if ``loader`` reads only that part, else cut out of them."""
        return prepared if loader.parts else own_part(prepared, self.run.mesh.axes)
