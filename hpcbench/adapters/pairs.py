"""Map-style datasets of any library as pairs of (inputs, targets), with their own collate function if they have one.

A Hugging Face ``datasets.Dataset`` after ``with_format("torch")`` is such a dataset: it has a length, and returns a
dict of tensors for an index.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from hpcbench.config.schema import RunConfig
from staging.errors import InputError

Keys = tuple[str, str]
"""Keys of the inputs and of the targets in a sample that is a dict."""
Collate = Callable[[list[Any]], Any]
SPLIT_SEED = 2019
"""Seed of random draws while datasets are made, so that all ranks split a set in the same way."""
SPLITS = ("train", "validation")


class Pairs(Dataset[Any]):
    """The samples of ``dataset`` as (inputs, targets); with ``collate``, whatever samples that function takes.

    Raises ``InputError`` for an iterable dataset.
    """

    def __init__(self, dataset: Any, keys: Keys | None = None, collate: Collate | None = None) -> None:
        check_map_style(dataset)
        self.dataset = dataset
        self.keys = keys
        self.collate_fn = collate
        self.collate = None if collate is None else self.batch
        for name in ("file_of", "check"):  # what a dataset may say about its samples; of another use if no method
            if callable(getattr(dataset, name, None)):
                setattr(self, name, getattr(dataset, name))
        if (files := files_of(dataset)) is not None:
            self.files = files

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self.dataset[index]
        return sample if self.collate_fn is not None else pair(sample, self.keys, "a sample")

    def batch(self, samples: list[Any]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a batch, made by the dataset's own collate function."""
        assert self.collate_fn is not None
        inputs, targets = pair(self.collate_fn(samples), self.keys, "a batch of collate_fn")
        return torch.as_tensor(inputs), torch.as_tensor(targets)


def files_of(dataset: Any) -> list[Path] | None:
    """The file of each sample, if the dataset lists them in ``files``, as texts or paths."""
    files = getattr(dataset, "files", None)
    if not isinstance(files, Sequence | np.ndarray) or isinstance(files, str) or len(files) != len(dataset):
        return None
    return [Path(file) for file in files] if all(isinstance(file, str | Path) for file in files) else None


def check_map_style(dataset: Any) -> None:
    """Refuse a dataset without numbered samples. Raises ``InputError``."""
    name = type(dataset).__name__
    numbered = hasattr(type(dataset), "__getitem__") and hasattr(type(dataset), "__len__")
    if isinstance(dataset, IterableDataset) or not numbered:
        raise InputError(
            f"{name} is an iterable dataset, whose samples have no numbers for the suite to order and deal to ranks; "
            "take a map-style one, with __len__ and __getitem__"
        )


def pair(sample: Any, keys: Keys | None, what: str) -> tuple[Any, Any]:
    """Inputs and targets of ``sample``, as tensors or numbers. Raises ``InputError`` for any other form."""
    if isinstance(sample, Mapping):
        names = ", ".join(map(str, sample))
        if keys is None:
            raise InputError(f"{what} is a dict of {names}; name its inputs and targets with `--keys INPUTS TARGETS`")
        missing = [key for key in keys if key not in sample]
        if missing:
            raise InputError(f"{what} has no entry '{missing[0]}', but {names}; change the keys")
        parts = sample[keys[0]], sample[keys[1]]
    elif isinstance(sample, Sequence) and len(sample) == 2:
        parts = sample[0], sample[1]
    else:
        form = f"a {type(sample).__name__}" + (f" of {len(sample)}" if isinstance(sample, Sequence) else "")
        raise InputError(f"{what} is {form}, not a pair of inputs and targets; give pairs, or dicts with keys")
    for value, name in zip(parts, keys or ("inputs", "targets"), strict=True):
        if not isinstance(value, Tensor | np.ndarray | np.generic | int | float):
            raise InputError(f"'{name}' of {what} is a {type(value).__name__}, not a tensor; convert it in the dataset")
    return parts


@contextmanager
def fixed_draws() -> Iterator[None]:
    """Draw random numbers of torch, NumPy and Python from one seed while entered; restore their states afterwards."""
    numbers, python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SPLIT_SEED)
        np.random.seed(SPLIT_SEED)
        random.seed(SPLIT_SEED)
        try:
            yield
        finally:
            np.random.set_state(numbers)
            random.setstate(python)


def split_of(make: Callable[[str], Any], config: RunConfig, split: str, keys: Keys | None = None) -> Pairs:
    """The samples of ``split`` from what ``make`` returns for the folder ``data.root``.

    ``make`` returns the training and validation sets as a pair, or as a dict with ``train`` and ``validation``, such as
    a ``DatasetDict``. Raises ``InputError`` for anything else.
    """
    with fixed_draws():
        made = make(config.data.root)
    if isinstance(made, Mapping) and all(name in made for name in SPLITS):
        return Pairs(made[split], keys)
    if isinstance(made, tuple | list) and len(made) == 2:
        return Pairs(made[SPLITS.index(split)], keys)
    name = getattr(make, "__name__", "the function of datasets")
    raise InputError(f"{name} returned a {type(made).__name__}; return the pair (training set, validation set)")
