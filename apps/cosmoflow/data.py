"""The splits of a CosmoFlow dataset as torch datasets, and the contents of its files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from apps.cosmoflow.config import PARAMETERS, Config, CosmoFlowData
from apps.cosmoflow.inspection import inspect_file, recognize_file
from apps.cosmoflow.samples import (
    LABEL_SUFFIX,
    LARGEST_LABEL,
    SUFFIXES,
    Counts,
    files_of_sample,
    label_file,
    read_npy_label,
    read_sample,
)
from apps.cosmoflow.universe import split_universe
from hpcbench.data.dali_samples import (
    INDEX_SUFFIX,
    DaliSamples,
    StoredArray,
    check_index,
    index_file,
    refuse_format,
    require_indices,
)
from hpcbench.data.spatial_part import Extents, slices, within
from hpcbench.parallel.spatial.extents import Extent
from staging.errors import DataError, InputError
from staging.files import list_samples
from staging.formats.hdf5 import check_whole
from staging.formats.regular import ROOM
from staging.units import counted

__all__ = [
    "CosmoFlowDataset", "check_file", "cut_file", "dali_samples", "files_of_split", "inspect_file", "largest_file",
    "npy_inputs", "open_split", "recognize_file", "staged_form",
]  # fmt: skip

cut_file = split_universe
ITEM_BYTES = 8
"""Size of the widest integers in which counts are stored."""


class CosmoFlowDataset(Dataset[tuple[Tensor, Tensor]]):
    """Samples of one split in the order of their names.

    An item is counts (C, S, S, S) int16 with the channels fastest in memory, as they are stored, and the label (4,)
    float32. ``files`` are those with the counts. Construction only lists the folder and opens no file. If ``extents``
    cut depth, height or width, only that part of the counts is read, if the format allows. With ``stored`` the npy
    files hold only those planes.
    """

    def __init__(
        self, data: CosmoFlowData, files: list[Path], extents: Extents | None = None, stored: Extent | None = None
    ) -> None:
        self.data = data
        self.files = files
        self.input_shape = (data.channels,) + (data.sample_size,) * 3
        self._part = slices(within(extents, stored), (2, 3, 4)) if extents else ()
        self._planes = data.sample_size if stored is None else stored.length

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        counts, label = read_sample(self.files[index], self.data, self._part, self._planes)
        return torch.from_numpy(counts).permute(3, 0, 1, 2), torch.from_numpy(label)

    def check(self, index: int) -> None:
        """Raise ``DataError`` if all counts are zero, which reading does not check."""
        check_particles(self.files[index], read_sample(self.files[index], self.data, planes=self._planes)[0])

    def part(self, extents: Extents, stored: Extent | None = None) -> CosmoFlowDataset:
        """Return the same samples, cut to ``extents`` of dimensions 2 (depth) to 4 (width) of a batch."""
        return CosmoFlowDataset(self.data, self.files, extents, stored)


def open_split(config: Config, split: str) -> CosmoFlowDataset:
    """Open the samples of ``train`` or ``validation``, as many as ``data`` says."""
    return CosmoFlowDataset(config.data, counts_files(config, split))


def counts_files(config: Config, split: str) -> list[Path]:
    """List the count files of the samples that are used; ``InputError`` if there are fewer than requested."""
    if not config.data.root:
        raise InputError("no dataset: set data.root to one, or make one with `hpcbench data simulate`")
    folder = Path(config.data.root) / split
    files = list_samples(folder, SUFFIXES[config.data.format])
    key = f"{split}_samples"
    wanted = getattr(config.data, key, None)
    if wanted is not None and wanted > len(files):
        raise InputError(
            f"data.{key} ({wanted}) is more than the {counted(len(files), 'sample')} in {folder}; lower it"
        )
    return files[:wanted]


def files_of_split(config: Config, split: str) -> list[Path]:
    """List every file of the samples that are used, including labels and the indices that DALI needs for TFRecords."""
    files = counts_files(config, split)
    samples = [path for counts in files for path in files_of_sample(counts, config.data.format)]
    # the output of a transform has an index made with it, or needs none
    indexed = config.data.loader == "dali" and config.data.format == "tfrecord" and not config.staging.transform
    return samples + [index_file(path) for path in files] if indexed else samples


def dali_samples(config: Config, split: str) -> DaliSamples:
    """The samples of a split for DALI: npy files, or uncompressed TFRecords with their indices beside them."""
    data = config.data
    if data.format == "hdf5":
        raise refuse_format("data.format", "hdf5", "simulate the set with --data.format npy")
    if data.format == "tfrecord" and data.compression == "gzip":
        change = "stage it with --staging.transform gunzip+tfrecord-index, simulate it with --data.compression none"
        raise refuse_format("data.compression", "gzip", change)
    files = counts_files(config, split)
    if data.format == "tfrecord":
        require_indices(files)
    return DaliSamples(
        kind="npy" if data.format == "npy" else "tfrecord",
        files=files,
        inputs=StoredArray((data.sample_size,) * 3 + (data.channels,), "int16", smallest=0),
        targets=StoredArray((len(PARAMETERS),), "float32", finite=True, smallest=-LARGEST_LABEL, largest=LARGEST_LABEL),
        finish=channels_first,
        targets_file=label_file,
        features=("x", "y"),
    )


def channels_first(counts: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return counts (N, S, S, S, C) as (N, C, S, S, S), in the same memory."""
    return counts.permute(0, 4, 1, 2, 3), labels


def check_file(path: Path, config: Config) -> None:
    """Read a whole file and raise ``DataError`` unless it is what ``config.data`` says, with valid values."""
    data = config.data
    if path.name.endswith(INDEX_SUFFIX):
        check_index(path)
        return
    if data.format == "npy" and path.name.endswith(LABEL_SUFFIX):
        read_npy_label(path)
        return
    if data.format == "hdf5":
        check_whole(path, largest_file(data))
    check_particles(path, read_sample(path, data)[0])


def check_particles(path: Path, counts: Counts) -> None:
    """Raise ``DataError`` if all counts are zero."""
    if not counts.any():
        raise DataError(path, "holds no particle at all", "copy it again, or remove it from the set")


def npy_inputs(data: CosmoFlowData) -> str:
    """Return the pattern of the count files, whose rows are planes. Raises ``InputError`` unless they are npy."""
    if data.format != "npy":
        raise InputError(
            f"staging.slabs leaves out planes of npy files, and data.format is {data.format}; "
            "set staging.transform tfrecord-to-npy, simulate with --data.format npy, or set staging.slabs false"
        )
    return f"*{SUFFIXES['npy']}"


def largest_file(data: CosmoFlowData) -> int:
    """The most bytes of a file of samples in any form: counts of any width, and as much again for other contents."""
    return 2 * ITEM_BYTES * data.sample_size**3 * data.channels + ROOM


def staged_form(data: CosmoFlowData, transform: str) -> None:
    """Set ``data`` to the form that samples have after ``transform``, to read what was staged with it.

    Raises ``InputError`` if this application cannot read that form.
    """
    if transform == "gunzip+tfrecord-index" or transform in ("gunzip", "tfrecord-index"):
        data.compression = "none"
    elif transform.split(":", maxsplit=1)[0] == "tfrecord-to-npy":
        data.format = "npy"
    else:
        raise InputError(
            f"cosmoflow cannot read what staging.transform {transform} makes; use gunzip or tfrecord-to-npy"
        )
