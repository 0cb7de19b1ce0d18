"""Loads given batches of samples, in a given order, with the torch loader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from hpcbench.data.sampler import Indices
from staging.errors import InputError

Batch = tuple[Tensor, Tensor]


class BatchReader(Dataset[Batch | InputError]):
    """A dataset whose items are whole batches; an empty batch is made of no samples of the right shape."""

    def __init__(self, samples: Dataset[Any], batches: Sequence[Indices]) -> None:
        self.samples = samples
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Batch | InputError:
        """Batch ``number``; bad input comes back as a value, since torch's workers turn errors into tracebacks."""
        try:
            return self.read(number)
        except InputError as error:
            return error

    def read(self, number: int) -> Batch:
        """Read and stack the samples of batch ``number``."""
        indices = self.batches[number]
        read = [self.samples[int(index)] for index in (indices if len(indices) else [0])]
        inputs, targets = (stack([torch.as_tensor(sample[part]) for sample in read]) for part in (0, 1))
        return inputs[: len(indices)], targets[: len(indices)]


def stack(parts: list[Tensor]) -> Tensor:
    """Stack samples along a new first dimension and keep their memory layout (channels-last stays channels-last)."""
    first = parts[0]
    order = sorted(range(first.dim()), key=first.stride, reverse=True)
    stored = torch.stack([part.permute(order) for part in parts])
    back = [0] * (first.dim() + 1)
    for position, dim in enumerate(order):
        back[dim + 1] = position + 1
    return stored.permute(back)


def load_batches(samples: Dataset[Any], batches: Sequence[Indices], workers: int, pin: bool) -> Iterator[Batch]:
    """Batches of (inputs, targets) in the given order; read ahead by ``workers`` processes, or inline with none."""
    reader = BatchReader(samples, batches)
    if workers == 0:
        return (reader.read(number) for number in range(len(reader)))
    loader = DataLoader(
        reader, batch_size=None, num_workers=workers, pin_memory=pin, multiprocessing_context="forkserver"
    )
    return (good(batch) for batch in loader)


def good(batch: Batch | InputError) -> Batch:
    """The batch, or the error that a worker met."""
    if isinstance(batch, InputError):
        raise batch
    return batch


def first_samples(samples: Any, wanted: int | None, key: str) -> Any:
    """The first ``wanted`` of a dataset, for applications that don't look at setting ``key`` themselves; else all."""
    if wanted is None or wanted == len(samples):
        return samples
    if wanted > len(samples):
        raise InputError(f"{key} ({wanted}) is more than the {len(samples)} samples of the dataset; lower it")
    return Subset(samples, range(wanted))


def default_workers(cores_per_rank: int) -> int:
    """No worker processes where a rank has few cores: there they take more from compute than they hide."""
    return 0 if cores_per_rank <= 4 else 4
