"""DeepCAM samples as published: sixteen float32 fields (height, width, 16) and a class per pixel, HDF5 or npy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from apps.deepcam.config import CHANNELS, CLASSES, Config, DeepCAMData
from apps.deepcam.statistics import STATISTICS_FILE, Statistics, load_statistics, read_statistics
from hpcbench.data.dali_samples import DaliSamples, StoredArray, refuse_format
from hpcbench.data.spatial_part import Extents, slices, within
from hpcbench.parallel.spatial.extents import Extent
from staging.errors import DataError, InputError
from staging.files import list_samples
from staging.formats.hdf5 import check_whole, describe, read_dataset
from staging.formats.npy import read_array
from staging.formats.regular import ROOM

__all__ = [
    "ClimateSplit", "Statistics", "check_file", "dali_samples", "files_of_split", "inspect_file", "largest_file",
    "load_statistics", "npy_inputs", "open_split", "recognize_file", "staged_form",
]  # fmt: skip

BROKEN = "copy the file again, or remove it"
PIXEL_BYTES = 8 * 2 * len(CHANNELS)
"""Most bytes of a file per pixel: variables and labels of any width, and as much again for other contents."""


class ClimateSplit(Dataset[tuple[Tensor, Tensor]]):
    """The samples of one split; item i is fields (channels, height, width) float32 and classes (height, width) uint8.

    The fields are a view of the stored (height, width, channels) array, which is channels-last for PyTorch. If
    ``extents`` cut height or width, only that part of the fields is read. With ``stored`` the npy files hold only those
    rows of the fields.
    """

    def __init__(
        self, files: list[Path], config: DeepCAMData, extents: Extents | None = None, stored: Extent | None = None
    ) -> None:
        self.files = files
        self.input_shape = (len(config.channels), config.height, config.width)
        self._config = config
        self._part = slices(within(extents, stored), (2, 3)) if extents else ()
        self._stored = stored

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        path = self.files[index]
        fields = torch.from_numpy(read_fields(path, self._config, self._part, self._stored)).permute(2, 0, 1)
        return fields, torch.from_numpy(read_labels(path, self._config))

    def part(self, extents: Extents, stored: Extent | None = None) -> ClimateSplit:
        """Return the same samples, cut to ``extents`` of dimensions 2 (height) and 3 (width) of a batch."""
        return ClimateSplit(self.files, self._config, extents, stored)


def open_split(config: Config, split: str) -> ClimateSplit:
    """Open the samples of ``split`` below ``data.root``, in the order of their names; only the folder is read.

    ``data.train_samples`` and ``data.validation_samples`` keep the first ones; ``InputError`` if there are fewer.
    """
    folder = Path(config.data.root) / split
    suffix = ".npy" if config.data.format == "npy" else ".h5"
    files = [path for path in list_samples(folder, suffix) if path.name.startswith("data-")]
    if not files:
        raise DataError(folder, f"holds no file named data-*{suffix}", "check data.format and data.root")
    key = {"train": "train_samples", "validation": "validation_samples"}.get(split, "")
    wanted = getattr(config.data, key, None)
    if wanted is None:
        return ClimateSplit(files, config.data)
    if not 1 <= wanted <= len(files):
        raise InputError(f"data.{key} ({wanted}) must be between 1 and {len(files)}, the files in {folder}; lower it")
    return ClimateSplit(files[:wanted], config.data)


def files_of_split(config: Config, split: str) -> list[Path]:
    """List every file of the samples that are used, including labels."""
    return [path for fields in open_split(config, split).files for path in files_of_sample(fields)]


def dali_samples(config: Config, split: str) -> DaliSamples:
    """The samples of a split for DALI, which reads npy only; values are checked as in the torch dataset."""
    data = config.data
    if data.format != "npy":
        change = "simulate the set with --data.format npy, stage it with --staging.transform hdf5-to-npy"
        raise refuse_format("data.format", data.format, change)

    def finish(fields: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if data.channels != list(range(len(CHANNELS))):
            fields = fields[..., data.channels]
        return fields.permute(0, 3, 1, 2), labels

    return DaliSamples(
        kind="npy",
        files=open_split(config, split).files,
        inputs=StoredArray((data.height, data.width, len(CHANNELS)), "float32", finite=True),
        targets=StoredArray((data.height, data.width), "uint8", largest=len(CLASSES) - 1),
        finish=finish,
        targets_file=lambda path: files_of_sample(path)[1],
    )


def shared_files(config: Config) -> list[Path]:
    """The file of statistics that normalize every sample."""
    return [Path(config.data.root) / STATISTICS_FILE]


def files_of_sample(path: Path) -> list[Path]:
    """The files of the sample whose fields are in ``path``: one of HDF5, two of npy (``data-*``, ``label-*``)."""
    if path.suffix == ".npy":
        return [path, path.with_name("label-" + path.name.removeprefix("data-"))]
    return [path]


def read_fields(
    path: Path, config: DeepCAMData, part: tuple[slice, ...] = (), stored: Extent | None = None
) -> npt.NDArray[np.float32]:
    """Read the chosen channels, (height, width, channels) float32, all finite; ``part`` cuts rows and columns.

    The variables of a pixel share a cache line of the file, so channels are selected after reading. If the file is a
    slab, it holds only the rows ``stored``. Raises ``DataError`` for a value that is not finite.
    """
    rows = stored or Extent(0, config.height)
    shape = (rows.length, config.width, len(CHANNELS))
    if path.suffix == ".npy":
        fields = read_array(path, shape=shape, dtype=np.float32, selection=part or None)
    else:
        raw_fields = read_dataset(path, "climate/data", shape=shape, dtype_kind="f", selection=part or None)
        fields = raw_fields.astype(np.float32, copy=False)
    if config.channels != list(range(len(CHANNELS))):
        fields = fields[..., config.channels]
    # A sum shows at once whether anything is not finite; only then is it located.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(fields.sum(dtype=np.float32))
    if suspicious and not np.isfinite(fields).all():
        row, column, place = (int(i) for i in np.argwhere(~np.isfinite(fields))[0])
        name, value = CHANNELS[config.channels[place]], fields[row, column, place]
        top, left = (cut.start or 0 for cut in part or (slice(None), slice(None)))
        raise DataError(path, f"{name} is {value} at row {rows.start + top + row}, column {left + column}", BROKEN)
    return fields


def read_labels(path: Path, config: DeepCAMData) -> npt.NDArray[np.uint8]:
    """Read the classes of the sample whose fields are in ``path``, (height, width) uint8 from 0 to 2."""
    shape = (config.height, config.width)
    if path.suffix == ".npy":
        path = files_of_sample(path)[1]
        stored: npt.NDArray[Any] = read_array(path, shape=shape, dtype=np.uint8)
    else:
        stored = read_dataset(path, "climate/labels_0", shape=shape, dtype_kind="fiu")
    with np.errstate(invalid="ignore"):
        labels = stored.astype(np.uint8, copy=False)
    wrong = (labels != stored) | (labels >= len(CLASSES))
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        problem = f"label {stored[row, column]} at row {row}, column {column} is not 0, 1 or 2"
        raise DataError(path, problem, BROKEN)
    return labels


def check_file(path: Path, config: Config) -> None:
    """Read a sample (or ``stats.h5``) to its last byte; raise ``DataError`` for the first thing wrong with it."""
    if path.name == STATISTICS_FILE:
        check_whole(path, ROOM)
        read_statistics(path)
    elif path.name.startswith("label-"):
        read_labels(path.with_name("data-" + path.name.removeprefix("label-")), config.data)
    else:
        if path.suffix != ".npy":
            check_whole(path, largest_file(config.data))
        read_fields(path, config.data)
        read_labels(path, config.data)


def inspect_file(path: Path) -> dict[str, str]:
    """Describe a sample or statistics file in lines for a reader: shapes, ranges of the variables, class shares."""
    if path.suffix == ".npy" and path.name.startswith("label-"):
        labels = read_array(path, shape=(None, None), dtype=np.uint8)
        return {"labels": f"{labels.shape} {labels.dtype}"} | _class_lines(labels)
    if path.suffix == ".npy":
        fields = read_array(path, shape=(None, None, len(CHANNELS)), dtype=np.float32)
        return {"data": f"{fields.shape} {fields.dtype}"} | _field_lines(fields)
    shapes = describe(path)
    lines = {key: f"{shape} {dtype}" for key, (shape, dtype) in shapes.items()}
    if "climate/data" in shapes:
        lines |= _field_lines(read_dataset(path, "climate/data", shape=(None, None, len(CHANNELS)), dtype_kind="f"))
    if "climate/labels_0" in shapes:
        lines |= _class_lines(read_dataset(path, "climate/labels_0", shape=(None, None), dtype_kind="fiu"))
    if "climate/minval" in shapes:
        statistics = read_statistics(path)
        for name, low, high in zip(CHANNELS, statistics.minimum, statistics.maximum, strict=True):
            lines[name] = f"{low:.4g} to {high:.4g}"
    return lines


def _field_lines(fields: npt.NDArray[Any]) -> dict[str, str]:
    pixels = fields.reshape(-1, len(CHANNELS))
    if not len(pixels):
        return {"variables": "of no pixel"}
    low, mean, high = pixels.min(0), pixels.mean(0, dtype=np.float64), pixels.max(0)
    return {name: f"{low[i]:.4g} to {high[i]:.4g}, mean {mean[i]:.4g}" for i, name in enumerate(CHANNELS)}


def _class_lines(labels: npt.NDArray[Any]) -> dict[str, str]:
    if not labels.size:
        return {"labels": "of no pixel"}
    return {name: f"{(labels == label).mean():.4%} of pixels" for label, name in enumerate(CLASSES)}


def recognize_file(path: Path) -> dict[str, Any] | None:
    """Return the ``data`` settings evident from the sample at ``path``; {} for statistics; ``None`` for anything else.

    Raises ``DataError`` for a file that has the name of a sample but is not one.
    """
    if path.name == STATISTICS_FILE:
        return {} if "climate/minval" in describe(path) else None
    if not path.name.startswith("data-"):
        return None
    if path.suffix == ".npy" and files_of_sample(path)[1].exists():
        shape = read_array(path, shape=(None, None, len(CHANNELS)), dtype=np.float32).shape
        return {"format": "npy", "height": shape[0], "width": shape[1]}
    datasets = describe(path) if path.suffix == ".h5" else {}
    shape = datasets["climate/data"][0] if {"climate/data", "climate/labels_0"} <= datasets.keys() else ()
    return {"format": "hdf5", "height": shape[0], "width": shape[1]} if shape[2:] == (len(CHANNELS),) else None


def npy_inputs(data: DeepCAMData) -> str:
    """Return the pattern of the field files, whose rows are the image's. Raises ``InputError`` unless they are npy."""
    if data.format != "npy":
        raise InputError(
            f"staging.slabs leaves out rows of npy files, and data.format is {data.format}; "
            "set staging.transform hdf5-to-npy, simulate with --data.format npy, or set staging.slabs false"
        )
    return "*data-*.npy"


def largest_file(data: DeepCAMData) -> int:
    """The most bytes of a file of a sample, in any form."""
    return data.height * data.width * PIXEL_BYTES + ROOM


def staged_form(data: DeepCAMData, transform: str) -> None:
    """Set ``data`` to the form that samples have after ``transform``, to read what was staged with it.

    Raises ``InputError`` if this application cannot read that form.
    """
    if transform.split(":", maxsplit=1)[0] != "hdf5-to-npy":
        raise InputError(f"deepcam cannot read what staging.transform {transform} makes; use hdf5-to-npy")
    data.format = "npy"
