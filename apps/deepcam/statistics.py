"""Statistics of the training set that normalize the inputs: ``stats.h5``, its merge rule, its parallel computation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from apps.deepcam.config import CHANNELS
from hpcbench.data.workers import worker_pool
from staging.errors import DataError, InputError
from staging.formats.hdf5 import read_dataset, write_datasets
from staging.formats.npy import read_array

STATISTICS_FILE = "stats.h5"
MOST_COUNT = 1 << 10
"""Most bytes of the dataset with the number of pixels, which is a single number."""
HOW_TO_MAKE = "make it from the training split, or copy the published one to data.root"


@dataclass(frozen=True, eq=False)
class Statistics:
    """Per channel over ``count`` pixels: mean, mean of squares (float64), minimum and maximum (float32), each (16,)."""

    count: int
    mean: npt.NDArray[np.float64]
    square_mean: npt.NDArray[np.float64]
    minimum: npt.NDArray[np.float32]
    maximum: npt.NDArray[np.float32]


def array_statistics(sample: npt.NDArray[np.float32]) -> Statistics:
    """Compute the statistics of one sample (height, width, 16)."""
    pixels = sample.reshape(-1, sample.shape[-1])
    mean = pixels.mean(0, dtype=np.float64)
    square_mean = np.einsum("pc,pc->c", pixels, pixels, dtype=np.float64) / len(pixels)
    return Statistics(len(pixels), mean, square_mean, pixels.min(0), pixels.max(0))


def file_statistics(path: Path) -> Statistics:
    """Compute the statistics of one sample file, HDF5 or npy, of any size."""
    shape = (None, None, len(CHANNELS))
    if path.suffix == ".npy":
        return array_statistics(read_array(path, shape=shape, dtype=np.float32))
    data = read_dataset(path, "climate/data", shape=shape, dtype_kind="f")
    return array_statistics(data.astype(np.float32, copy=False))


def merge(a: Statistics, b: Statistics) -> Statistics:
    """Merge two sets: counts add up, means are weighted by counts, extrema are elementwise (published rule)."""
    count = a.count + b.count
    share = b.count / count
    return Statistics(
        count,
        a.mean + share * (b.mean - a.mean),
        a.square_mean + share * (b.square_mean - a.square_mean),
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )


def merge_all(parts: Iterable[Statistics]) -> Statistics:
    """Merge the parts, one after the other; there must be at least one."""
    return reduce(merge, parts)


def summarize(files: Sequence[Path], processes: int = 1) -> Statistics:
    """Compute statistics of sample files with ``processes`` processes; the result does not depend on their number."""
    if not files:
        raise InputError("there is no file to summarize; give at least one sample file")
    if processes <= 1:
        return merge_all(map(file_statistics, files))
    chunk = max(1, len(files) // (4 * processes))
    with worker_pool("apps.deepcam", processes) as pool:
        return merge_all(pool.map(file_statistics, files, chunksize=chunk))


def write_statistics(path: Path, statistics: Statistics) -> None:
    """Write ``stats.h5`` in the published form."""
    datasets: dict[str, npt.ArrayLike] = {
        "climate/count": np.int64(statistics.count),
        "climate/mean": statistics.mean.astype(np.float32),
        "climate/sqmean": statistics.square_mean.astype(np.float32),
        "climate/minval": statistics.minimum,
        "climate/maxval": statistics.maximum,
    }
    write_datasets(path, datasets)


def load_statistics(root: Path | str) -> Statistics:
    """Read ``stats.h5`` of the dataset at ``root``, as ``read_statistics`` does."""
    return read_statistics(Path(root) / STATISTICS_FILE)


def read_statistics(path: Path) -> Statistics:
    """Read a file of statistics in the form of ``stats.h5``.

    Raises ``DataError`` if the file is missing, lacks a dataset, holds a number that is not finite, or has an empty
    range for a channel, which then cannot be normalized. Mean and mean of squares normalize nothing and are rounded as
    published, so their difference is not checked.
    """
    if not path.exists():
        raise DataError(path, "no such file", HOW_TO_MAKE)
    count = np.asarray(read_dataset(path, "climate/count", dtype_kind="iuf", most=MOST_COUNT)).reshape(-1)
    if len(count) != 1 or not np.isfinite(count[0]) or count[0] < 1:
        raise DataError(path, f"dataset 'climate/count' is {count.tolist()}, not a number above 0", HOW_TO_MAKE)
    minimum, maximum = (_row(path, key) for key in ("minval", "maxval"))
    for channel, name in enumerate(CHANNELS):
        low, high = np.float32(minimum[channel]), np.float32(maximum[channel])
        with np.errstate(over="ignore"):
            extent = high - low
        if not (extent > 0 and np.isfinite(extent)):
            raise DataError(path, f"channel {channel} ({name}) has minval {low:g} and maxval {high:g}", HOW_TO_MAKE)
    mean, square_mean = (_finite(path, key, _row(path, key)) for key in ("mean", "sqmean"))
    return Statistics(
        int(count[0]), mean.astype(np.float64), square_mean.astype(np.float64), minimum.astype(np.float32),
        maximum.astype(np.float32),
    )  # fmt: skip


def _row(path: Path, key: str) -> npt.NDArray[Any]:
    return read_dataset(path, f"climate/{key}", shape=(len(CHANNELS),), dtype_kind="f")


def _finite(path: Path, key: str, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
    wrong = np.flatnonzero(~np.isfinite(row))
    if len(wrong):
        channel = int(wrong[0])
        raise DataError(path, f"channel {channel} ({CHANNELS[channel]}) has {key} {row[channel]:g}", HOW_TO_MAKE)
    return row
