"""One CosmoFlow sample on disk, in each of its forms: counts (S, S, S, C) int16 and a label (4,) float32.

- ``tfrecord``: one ``tf.train.Example`` with the features ``x`` (raw little-endian counts) and ``y``, plain or gzip.
- ``hdf5``: the datasets ``x`` and ``y``.
- ``npy``: ``<name>_data.npy`` and ``<name>_label.npy``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.cosmoflow.config import PARAMETERS, CosmoFlowData
from staging.errors import DataError
from staging.formats.example import Feature, decode_example, encode_example
from staging.formats.hdf5 import open_hdf5, read_dataset, write_datasets
from staging.formats.npy import read_array, write_array
from staging.formats.regular import MOST_BYTES, ROOM
from staging.formats.tfrecord import read_record, write_records

Counts = NDArray[np.int16]
Label = NDArray[np.float32]

SUFFIXES = {"tfrecord": ".tfrecord", "hdf5": ".hdf5", "npy": "_data.npy"}
"""Ending of the name of the file that holds the counts, by format."""
LABEL_SUFFIX = "_label.npy"
LARGEST_LABEL = 1.001
"""Labels are scaled to [-1, 1] as published; the excess allows for rounding."""


def files_of_sample(counts_file: Path, form: str) -> list[Path]:
    """Return all files of the sample whose counts are in ``counts_file``."""
    return [counts_file, label_file(counts_file)] if form == "npy" else [counts_file]


def label_file(counts_file: Path) -> Path:
    """Return the path of the ``_label.npy`` that belongs to a ``_data.npy``."""
    return counts_file.with_name(counts_file.name.removesuffix(SUFFIXES["npy"]) + LABEL_SUFFIX)


def read_sample(
    path: Path, data: CosmoFlowData, part: tuple[slice, ...] = (), planes: int | None = None
) -> tuple[Counts, Label]:
    """Read counts (S, S, S, C) int16 and label (4,) float32 of the sample whose counts are in the file ``path``.

    ``part`` cuts the counts in their first dimensions; a TFRecord is still read whole, to check it. If the file is a
    slab, it has ``planes`` of the S. Raises ``DataError`` for a file that is missing, damaged, larger or of another
    form than ``data`` says, for a label that is not finite or out of range, and for a negative count.
    """
    size = data.sample_size
    shape = (size if planes is None else planes, size, size, data.channels)
    if data.format == "tfrecord":
        counts, label = _read_tfrecord(path, data, shape)
        return checked_counts(path, np.ascontiguousarray(counts[part]) if part else counts), label
    if data.format == "hdf5":
        with open_hdf5(path) as file:
            return read_counts(path, "x", shape, part or None, file), read_label(path, "y", file)
    counts = read_array(path, shape=shape, dtype=np.int16, selection=part or None)
    return checked_counts(path, counts), read_npy_label(label_file(path))


def write_sample(path: Path, counts: Counts, label: Label, data: CosmoFlowData) -> None:
    """Write a sample to ``path`` (the file for the counts) in the format of ``data``; equal samples, equal bytes."""
    if data.format == "tfrecord":
        raw = np.ascontiguousarray(counts, dtype="<i2")
        payload = encode_example({"x": raw.data.cast("B"), "y": label})
        write_records(path, [payload], data.compression)
    elif data.format == "hdf5":
        packed: Any = "gzip" if data.compression == "gzip" else None
        write_datasets(path, {"x": counts, "y": label}, compression=packed)
    else:
        # the label first, so that a file of counts is never without one
        write_array(label_file(path), label)
        write_array(path, counts)


def read_counts(path: Path, key: str, shape: tuple[int | None, ...], selection: Any = None, file: Any = None) -> Counts:
    """Read integer dataset ``key`` of an HDF5 file, or a ``selection`` of it, as int16; no count may be negative."""
    counts = read_dataset(path, key, shape=shape, dtype_kind="iu", selection=selection, file=file)
    if counts.dtype != np.int16 and counts.size and not -(2**15) <= counts.min() <= counts.max() < 2**15:
        raise DataError(path, f"dataset '{key}' holds counts beyond int16 (largest {counts.max()})", "write it again")
    return checked_counts(path, counts.astype(np.int16, copy=False))


def read_label(path: Path, key: str, file: Any = None) -> Label:
    """Read floating-point dataset ``key`` (4,) of an HDF5 file as float32, checked to be in range."""
    label = read_dataset(path, key, shape=(len(PARAMETERS),), dtype_kind="f", file=file).astype(np.float32, copy=False)
    return checked_label(path, label)


def read_npy_label(path: Path) -> Label:
    """Read the label (4,) float32 of an npy file, checked to be in range."""
    return checked_label(path, read_array(path, shape=(len(PARAMETERS),), dtype=np.float32))


def checked_counts(path: Path, counts: Counts) -> Counts:
    """Return ``counts``; ``DataError`` if one is negative. Takes 1 to 2 % of the time of reading them from memory."""
    if counts.size and (lowest := int(counts.min())) < 0:
        raise DataError(path, f"holds a count of {lowest}", "copy it again, or remove it from the set")
    return counts


def checked_label(path: Path, label: Label) -> Label:
    """Return ``label``; ``DataError`` if it is not finite or not within [-1, 1] to rounding."""
    if not all(abs(value) <= LARGEST_LABEL for value in label.tolist()):  # NaN fails this, too
        raise DataError(path, f"label {label.tolist()} is not within [-1, 1]", "copy it again, or remove it")
    return label


def _read_tfrecord(path: Path, data: CosmoFlowData, shape: tuple[int, ...]) -> tuple[Counts, Label]:
    features = read_features(path, data.compression, 2 * int(np.prod(shape)) + ROOM)
    raw, label = features["x"], features["y"]
    if not isinstance(raw, list) or len(raw) != 1:
        raise DataError(path, "feature 'x' is not one string of bytes", "check that it is a CosmoFlow TFRecord")
    wanted = 2 * int(np.prod(shape))
    if len(raw[0]) != wanted:
        raise DataError(
            path,
            f"feature 'x' has {len(raw[0])} bytes where int16 {shape} needs {wanted}",
            "set data.sample_size and data.channels to the file's",
        )
    if not isinstance(label, np.ndarray) or label.dtype != np.float32 or label.shape != (len(PARAMETERS),):
        stored = f"{label.dtype} {label.shape}" if isinstance(label, np.ndarray) else f"{len(label)} strings of bytes"
        raise DataError(path, f"feature 'y' is {stored} where float32 (4,) is expected", "check data.root")
    counts = np.frombuffer(raw[0], "<i2").astype(np.int16, copy=False).reshape(shape)
    return np.require(counts, requirements="W"), np.require(checked_label(path, label), requirements="W")


def read_features(path: Path, compression: Any, most: int = MOST_BYTES) -> dict[str, Feature]:
    """Read the features ``x`` and ``y`` of the one record in ``path``.

    Raises ``DataError`` if they are missing, for a second record, and for more than ``most`` bytes.
    """
    features = decode_example(read_record(path, compression, most), path)
    for name in ("x", "y"):
        if name not in features:
            names = ", ".join(f"'{key}'" for key in sorted(features)) or "none"
            raise DataError(path, f"has no feature '{name}', it has {names}", "check that it is a CosmoFlow TFRecord")
    return features
