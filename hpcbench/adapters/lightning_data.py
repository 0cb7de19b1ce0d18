"""The datasets of a LightningDataModule; the suite decides the batches, their order and the ranks that they go to.

Does not import Lightning: objects are recognized by their methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from hpcbench.adapters.no_trainer import NoTrainer, check_hooks
from hpcbench.adapters.pairs import Keys, Pairs, check_map_style, fixed_draws
from hpcbench.config.schema import RunConfig
from staging.errors import InputError

LOADERS = {"train": "train_dataloader", "validation": "val_dataloader"}
HOOKS = ("on_before_batch_transfer", "on_after_batch_transfer", "transfer_batch_to_device")
"""Hooks that change batches, which the suite does not call."""
ORDERS = (RandomSampler, SequentialSampler, DistributedSampler)
"""Samplers that take each sample once."""


def data_module_split(make: Callable[[str], Any], config: RunConfig, split: str, keys: Keys | None = None) -> Pairs:
    """The samples of ``train`` or ``validation``, after ``setup("fit")``. ``prepare_data`` is not called.

    ``make`` returns the data module for the folder ``data.root``. It is called for each split, with the same random
    draws, since a constructor may split a set at random. Raises ``InputError`` for what the suite cannot use unchanged.
    """
    with fixed_draws():
        module = make(config.data.root)
        check_hooks(module, HOOKS)
        module.trainer = NoTrainer(type(module).__name__)
        module.setup("fit")
        loader = getattr(module, LOADERS[split])()
    name = f"{type(module).__name__}.{LOADERS[split]}"
    if isinstance(loader, list | tuple) and len(loader) == 1:
        loader = loader[0]
    if not isinstance(loader, DataLoader):
        raise InputError(f"{name} returned a {type(loader).__name__}; return one DataLoader")
    check_map_style(loader.dataset)
    if loader.batch_sampler is None:
        raise InputError(f"{name} has batch_size None, so its dataset makes the batches; let it return single samples")
    check_order(loader, name)
    return Pairs(loader.dataset, keys, None if loader.collate_fn is default_collate else loader.collate_fn)


def check_order(loader: DataLoader[Any], name: str) -> None:
    """Refuse a sampler that chooses among the samples. Raises ``InputError``."""
    batches = loader.batch_sampler
    kind = "" if batches is None or type(batches) is BatchSampler else type(batches).__name__
    # A loader that was given a batch sampler has a sequential sampler beside it, which it does not use.
    sampler = getattr(batches, "sampler", loader.sampler)
    if kind := kind or choice(sampler, len(loader.dataset)):  # type: ignore[arg-type]
        raise InputError(
            f"{name} has a {kind}, but the suite takes each sample once an epoch, in its own order; "
            "leave the sampler out, or choose the samples in the dataset"
        )


def choice(sampler: Any, samples: int) -> str:
    """What ``sampler`` is if it does not take each of the ``samples`` once, else an empty text."""
    kind = type(sampler).__name__
    if type(sampler) not in ORDERS:
        return kind
    if getattr(sampler, "replacement", False):
        return f"{kind} with replacement"
    taken: Any = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
    return "" if len(taken) == samples else f"{kind} that takes {len(taken)} for a set of {samples} samples"


def prepare(module: Any) -> None:
    """Call ``prepare_data``, which downloads what the dataset needs: once, in one process, before any run."""
    module.prepare_data()
    print(f"prepared the data of {type(module).__name__}")


def files_nowhere(config: RunConfig) -> list[Any]:
    """Files of a set that is not read from ``data.root``: none. Raises ``InputError`` if they should be staged."""
    if config.staging.destination:
        raise InputError(
            f"the dataset does not take the folder data.root, so staging.destination ({config.staging.destination}) "
            "would stage nothing that it reads; pass config.data.root to it in data.py, and remove files_of_split there"
        )
    return []
