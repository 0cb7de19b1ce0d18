"""The splits of a CosmoFlow dataset as torch datasets, and what is in its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from apps.cosmoflow.config import Config
from apps.cosmoflow.inspection import inspect_file
from apps.cosmoflow.samples import (
    LABEL_SUFFIX,
    SUFFIXES,
    Counts,
    Label,
    read_npy_label,
    read_sample,
    sample_files,
)
from apps.cosmoflow.universe import split_universe
from staging.errors import DataError, InputError
from staging.files import list_samples

__all__ = ["CosmoFlowDataset", "check_file", "inspect_file", "open_split", "split_file", "split_files"]

split_file = split_universe


class CosmoFlowDataset(Dataset[tuple[Tensor, Tensor]]):
    """Samples of one split in the order of their names.

    An item is counts (C, S, S, S) int16 with the channels fastest in memory, as they are stored, and the label (4,)
    float32. ``files`` are those with the counts. Only the folder is listed on construction; no file is opened.
    """

    def __init__(self, config: Config, split: str) -> None:
        self.data = config.data
        self.files = counts_files(config, split)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        counts, label = read_sample(self.files[index], self.data)
        return torch.from_numpy(counts).permute(3, 0, 1, 2), torch.from_numpy(label)


def open_split(config: Config, split: str) -> CosmoFlowDataset:
    """The samples of ``train`` or ``validation``, as many as ``data`` says."""
    return CosmoFlowDataset(config, split)


def counts_files(config: Config, split: str) -> list[Path]:
    """The files with counts of the samples that are used; ``InputError`` where there are fewer than asked for."""
    if not config.data.root:
        raise InputError("no dataset: set data.root to one, or make one with `hpcbench data simulate`")
    folder = Path(config.data.root) / split
    files = list_samples(folder, SUFFIXES[config.data.format])
    key = f"{split}_samples"
    wanted = getattr(config.data, key, None)
    if wanted is not None and wanted > len(files):
        raise InputError(f"data.{key} ({wanted}) is more than the {len(files)} samples in {folder}; lower it")
    return files[:wanted]


def split_files(config: Config, split: str) -> list[Path]:
    """Every file of the samples that are used, labels included."""
    return [path for counts in counts_files(config, split) for path in sample_files(counts, config.data.format)]


def check_file(path: Path, config: Config) -> None:
    """Read a file whole and raise ``DataError`` unless it is what ``config.data`` says, with sound values."""
    if config.data.format == "npy" and path.name.endswith(LABEL_SUFFIX):
        check_label(path, read_npy_label(path))
        return
    counts, label = read_sample(path, config.data)
    check_counts(path, counts)
    check_label(path, label)


def check_counts(path: Path, counts: Counts) -> None:
    """Counts of particles are never negative and not all zero."""
    if (lowest := int(counts.min())) < 0:
        raise DataError(path, f"holds a count of {lowest}", "copy it again, or remove it from the set")
    if not counts.any():
        raise DataError(path, "holds no particle at all", "copy it again, or remove it from the set")


def check_label(path: Path, label: Label) -> None:
    """Labels are scaled to [-1, 1], to rounding."""
    if not np.isfinite(label).all() or np.abs(label).max() > 1.001:
        raise DataError(path, f"label {label.tolist()} is not within [-1, 1]", "remove it from the set")
