"""Loads given batches of samples, in a given order, with the torch loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pickle import PicklingError
from typing import Any, Protocol
from warnings import catch_warnings, filterwarnings

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.dali_samples import DaliSamples
from hpcbench.data.sampler import Indices
from hpcbench.data.shard import Shard, some_sample
from hpcbench.data.spatial_part import part_of
from hpcbench.parallel.peers import Peers
from hpcbench.parallel.spatial.extents import Extent
from staging.errors import Aborted, InputError
from staging.first_reads import FirstReads
from staging.units import counted

Batch = tuple[Tensor, Tensor]
AHEAD = 4
"""Batches that a reader process reads ahead, unless the configuration sets another number."""


class Loader(Protocol):
    """Loads batches of one dataset."""

    parts: bool
    """Whether the inputs are this rank's part of samples that a group of ranks shares, rather than whole ones."""

    def load(self, batches: Sequence[Indices]) -> Iterator[Batch]:
        """Batches of (inputs, targets) in the given order, empty ones included. Raises ``InputError`` for bad input.

        Batches are on the host, or already on the device that the loader was made for.
        """
        ...

    def close(self) -> None:
        """End the processes that read ahead. An unfinished ``load`` gives no more batches; another one starts anew."""


def open_loader(
    application: Application,
    config: RunConfig,
    split: str,
    samples: Any,
    workers: int,
    device: torch.device,
    axes: Mapping[int, Peers] | None = None,
    stored: Extent | None = None,
    first_reads: FirstReads | None = None,
) -> Loader:
    """The loader that ``data.loader`` names, for one split; it reads nothing before it is asked to load.

    With ``axes`` it reads this rank's part of each sample along them, if loader and dataset can. With ``stored``, the
    files hold only those places of dimension 2 of a batch. ``first_reads`` checks what the torch loader reads, and not
    what DALI does, which reads files itself.
    """
    if config.data.loader == "torch":
        part = part_of(samples, axes, stored) if axes else None
        return BatchLoader(
            samples if part is None else part, workers, pin=device.type != "cpu", parts=part is not None,
            prefetch=config.data.prefetch, first_reads=first_reads,
        )  # fmt: skip
    from hpcbench.data.dali_loader import DaliLoader, describe

    def described() -> DaliSamples:
        spec = describe(application, config, split)
        return replace(spec, files=samples.also(spec.files)) if isinstance(samples, Shard) else spec

    return DaliLoader(samples, described, workers, device, config.data.prefetch)


class BatchReader(Dataset[Batch | InputError]):
    """A dataset whose items are whole batches; an empty batch has no samples, but the right shape."""

    def __init__(self, samples: Dataset[Any], first_reads: FirstReads | None = None) -> None:
        self.samples = samples
        self.first_reads = first_reads
        self.collate = collate_of(samples)

    def __getitem__(self, indices: Indices) -> Batch | InputError:
        """The batch of these samples; an error is returned, not raised, since torch's workers print tracebacks."""
        try:
            return self.read(indices)
        except InputError as error:
            return error

    def read(self, indices: Indices) -> Batch:
        """Read and stack samples; raises ``DataError`` for a file that differs from what was staged."""
        with nullcontext() if self.first_reads is None else self.first_reads.checking():
            return self._read(indices)

    def _read(self, indices: Indices) -> Batch:
        read = [self.samples[int(index)] for index in (indices if len(indices) else [some_sample(self.samples)])]
        if self.collate is not None:
            inputs, targets = self.collate(read)
        else:
            inputs, targets = (stack([torch.as_tensor(sample[part]) for sample in read]) for part in (0, 1))
        return inputs[: len(indices)], targets[: len(indices)]


def collate_of(samples: Any) -> Callable[[list[Any]], Batch] | None:
    """The collate function of the dataset, or of the one that it is a part of; ``None``: samples are stacked."""
    while isinstance(samples, Subset | Shard):
        samples = samples.dataset if isinstance(samples, Subset) else samples.items
    collate: Callable[[list[Any]], Batch] | None = getattr(samples, "collate", None)
    return collate


class BatchLoader:
    """Loads batches of one dataset, read ahead by ``workers`` lasting processes, or inline with none."""

    def __init__(
        self, samples: Dataset[Any], workers: int, pin: bool, parts: bool = False, prefetch: int | None = None,
        first_reads: FirstReads | None = None,
    ) -> None:  # fmt: skip
        self.parts = parts
        self.reader = BatchReader(samples, first_reads)
        self.workers, self.pin, self.prefetch = workers, pin, AHEAD if prefetch is None else prefetch
        self._asked = RequestedBatches()
        self._loader: DataLoader[Batch | InputError] | None = None

    def load(self, batches: Sequence[Indices]) -> Iterator[Batch]:
        """Batches of (inputs, targets) in the given order. Raises what the dataset raises for bad input."""
        if not self.workers:
            return (self.reader.read(indices) for indices in batches)
        if self._loader is None:
            self._loader = DataLoader(
                self.reader,
                batch_size=None,
                sampler=self._asked,
                num_workers=self.workers,
                pin_memory=self.pin,
                prefetch_factor=self.prefetch,
                persistent_workers=True,
                multiprocessing_context="forkserver",
            )
        self._asked.batches = batches
        return alive(good(batch) for batch in started(self._loader))

    def close(self) -> None:
        """End the processes, which takes milliseconds; the garbage collector would wait 5 s for each."""
        self._loader = None


class RequestedBatches:
    """The batches that were last requested from a loader, as the sampler of the torch loader."""

    def __init__(self) -> None:
        self.batches: Sequence[Indices] = []

    def __iter__(self) -> Iterator[Indices]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def stack(parts: list[Tensor]) -> Tensor:
    """Stack samples along a new first dimension and keep their memory layout (channels-last stays channels-last).

    For a dimension of one element any stride is right; it gets that of a contiguous tensor. Raises ``InputError`` for
    samples of several shapes.
    """
    first = parts[0]
    other = next((part for part in parts if part.shape != first.shape), None)
    if other is not None:
        raise InputError(
            f"samples of a batch have the shapes {tuple(first.shape)} and {tuple(other.shape)}; give them one, or give "
            "their dataset a collate function that pads them"
        )
    strides = [first.stride(dim) if size > 1 else first.shape[dim:].numel() for dim, size in enumerate(first.shape)]
    order = sorted(range(first.dim()), key=strides.__getitem__, reverse=True)
    stored = torch.stack([part.permute(order) for part in parts])
    back = [0] * (first.dim() + 1)
    for position, dim in enumerate(order):
        back[dim + 1] = position + 1
    return stored.permute(back)


def good(batch: Batch | InputError) -> Batch:
    """Return the batch, or raise the error that a worker returned."""
    if isinstance(batch, InputError):
        raise batch
    return batch


def started(loader: DataLoader[Batch | InputError]) -> Iterator[Batch | InputError]:
    """The batches of ``loader``, whose processes run. Raises ``InputError`` if its dataset cannot be sent to these."""
    try:
        with catch_warnings():
            filterwarnings("ignore", "Got pickle error")  # which the error says
            return iter(loader)
    except (PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the dataset cannot be sent to processes that read it ({type(error).__name__}: {error}); use no lambda or "
            "inner function in it, open files in __getitem__, or set data.workers 0"
        ) from None


def alive(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches of worker processes; raises ``Aborted`` in place of torch's error if one of these was killed."""
    try:
        yield from batches
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        lower = "lower data.workers or data.prefetch"
        raise Aborted(f"a process that reads samples was killed (out of memory?); {lower}") from None


def first_samples(samples: Any, wanted: int | None, key: str) -> Any:
    """The first ``wanted`` samples of a dataset, or all with ``None``; for applications that ignore setting ``key``."""
    if wanted is None or wanted == len(samples):
        return samples
    if wanted > len(samples):
        raise InputError(
            f"{key} ({wanted}) is more than the {counted(len(samples), 'sample')} of the dataset; lower it"
        )
    return Subset(samples, range(wanted))


def default_workers(cores_per_rank: int) -> int:
    """Worker processes of a rank; none if it has few cores, since they would cost compute more than they hide."""
    return 0 if cores_per_rank <= 4 else 4
