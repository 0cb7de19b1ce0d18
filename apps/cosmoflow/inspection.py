"""Describe what a CosmoFlow file holds, whichever of the published forms it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.cosmoflow.config import PARAMETERS, CosmoFlowData
from apps.cosmoflow.cosmology import parameters_from_label
from apps.cosmoflow.samples import LABEL_SUFFIX, SUFFIXES, label_file, read_features
from staging.errors import DataError
from staging.formats.hdf5 import describe, read_dataset
from staging.formats.npy import read_array
from staging.formats.regular import opened

CHANNELS = CosmoFlowData().channels
PLANES = 32
"""Planes of an HDF5 dataset that are read at a time."""
CELLS = 2**18
"""Cells whose logarithms are in memory at a time: 8 MiB for four channels."""


def inspect_file(path: Path) -> dict[str, str]:
    """Return format, arrays with shape and dtype, smallest, mean and largest count, the label and its parameters.

    The first bytes of the file determine its form. Raises ``DataError`` for a file of none of the forms.
    """
    magic = _first_bytes(path)
    if magic.startswith(b"\x89HDF"):
        return _inspect_hdf5(path)
    if magic.startswith(b"\x93NUMPY"):
        return _inspect_npy(path)
    return _inspect_tfrecord(path, "gzip" if magic.startswith(b"\x1f\x8b") else "none")


def recognize_file(path: Path) -> dict[str, Any] | None:
    """Return the ``data`` settings evident from the sample at ``path``; {} for a universe; ``None`` for anything else.

    A TFRecord does not say how many channels it has; four are assumed, as in all published sets. Raises ``DataError``
    for a file that has the name of a sample but is not one.
    """
    if path.name.endswith(SUFFIXES["tfrecord"]):
        compression = "gzip" if _first_bytes(path).startswith(b"\x1f\x8b") else "none"
        (raw,), label = (read_features(path, compression)[key] for key in ("x", "y"))
        if not isinstance(label, np.ndarray) or label.shape != (len(PARAMETERS),):
            return None
        edge = round((len(raw) / 2 / CHANNELS) ** (1 / 3))
        form = {"format": "tfrecord", "compression": compression}
        return form | ({"sample_size": edge, "channels": CHANNELS} if len(raw) == 2 * CHANNELS * edge**3 else {})
    if path.name.endswith(SUFFIXES["hdf5"]):
        datasets = describe(path)
        if {"full", "unitPar"} <= datasets.keys():
            return {}
        shape = datasets["x"][0] if {"x", "y"} <= datasets.keys() else ()
        return {"format": "hdf5", "sample_size": shape[1], "channels": shape[3]} if len(shape) == 4 else None
    if path.name.endswith(SUFFIXES["npy"]) and label_file(path).exists():
        shape = read_array(path, shape=(None, None, None, None), dtype=np.int16).shape
        return {"format": "npy", "sample_size": shape[1], "channels": shape[3]}
    return None


def _first_bytes(path: Path) -> bytes:
    with opened(path) as file:
        return file.read(6)


def _inspect_tfrecord(path: Path, compression: str) -> dict[str, str]:
    features = read_features(path, compression)
    raw, label = features["x"], features["y"]
    if not isinstance(raw, list) or len(raw) != 1 or not isinstance(label, np.ndarray):
        raise DataError(path, "features 'x' and 'y' are not bytes and floats", "check that it is a CosmoFlow TFRecord")
    counts = np.frombuffer(raw[0][: len(raw[0]) // 2 * 2], "<i2")
    edge = round((counts.size / 4) ** (1 / 3))
    shape = f"({edge}, {edge}, {edge}, 4)" if 4 * edge**3 == counts.size else f"({counts.size},), not a cube"
    facts = {"format": "TFRecord, " + ("gzip" if compression == "gzip" else "plain")}
    facts |= {"x": f"{shape} int16", "y": f"{label.shape} {label.dtype}"}
    by_channel = counts.reshape(-1, CHANNELS) if counts.size % CHANNELS == 0 else counts[:, None]
    return facts | _count_facts([by_channel]) | _label_facts(label)


def _inspect_hdf5(path: Path) -> dict[str, str]:
    datasets = describe(path)
    facts = {"format": "HDF5"} | {key: f"{shape} {dtype}" for key, (shape, dtype) in sorted(datasets.items())}
    for counts_key, label_key, meaning in (("x", "y", "sample"), ("full", "unitPar", "universe")):
        if label_key in datasets and len(datasets.get(counts_key, ((), ""))[0]) == 4:
            facts["format"] = f"HDF5, {meaning}"
            slabs = _slabs(path, counts_key, datasets[counts_key][0][0])
            return facts | _count_facts(slabs) | _label_facts(read_dataset(path, label_key, dtype_kind="f"))
    return facts


def _slabs(path: Path, key: str, planes: int) -> Iterator[NDArray[np.integer]]:
    for start in range(0, planes, PLANES):
        yield read_dataset(path, key, dtype_kind="iu", selection=(slice(start, start + PLANES),))


def _inspect_npy(path: Path) -> dict[str, str]:
    if path.name.endswith(LABEL_SUFFIX):
        label = read_array(path, shape=(len(PARAMETERS),), dtype=np.float32)
        return {"format": "npy, label", "array": f"{label.shape} {label.dtype}"} | _label_facts(label)
    counts = read_array(path, shape=(None, None, None, None), dtype=np.int16)
    facts = {"format": "npy, counts", "array": f"{counts.shape} {counts.dtype}"} | _count_facts([counts])
    if (beside := label_file(path)).exists():
        facts |= _label_facts(read_array(beside, shape=(len(PARAMETERS),), dtype=np.float32))
    return facts


def _count_facts(parts: Iterable[NDArray[np.integer]]) -> dict[str, str]:
    """Statistics of counts whose last dimension is the channel."""
    lowest, highest, total, number = [], [], 0, 0
    logs = squares = np.zeros(1)  # of ln(1 + count), by channel
    for part in parts:
        if not part.size:
            continue
        lowest.append(int(part.min()))
        highest.append(int(part.max()))
        total += int(part.sum(dtype=np.int64))
        number += part.size
        cells = part.reshape(-1, part.shape[-1])
        for start in range(0, len(cells), CELLS):
            values = np.log1p(cells[start : start + CELLS].clip(min=0).astype(np.float64))
            logs, squares = logs + values.sum(axis=0), squares + (values**2).sum(axis=0)
    if not number:
        return {"counts": "none"}
    facts = {"counts": f"min {min(lowest)}, mean {total / number:.4g}, max {max(highest)}"}
    mean = logs * np.size(logs) / number
    std = np.sqrt(np.maximum(squares * np.size(squares) / number - mean**2, 0))
    for name, values in (("mean", mean), ("std", std)):
        facts[f"{name} of ln(1 + count), by channel"] = ", ".join(f"{value:.3f}" for value in values)
    return facts


def _label_facts(label: NDArray[np.floating]) -> dict[str, str]:
    facts = {"label": ", ".join(f"{value:+.4f}" for value in label.ravel().tolist())}
    if label.shape == (len(PARAMETERS),):
        physical = zip(PARAMETERS, parameters_from_label(label).tolist(), strict=True)
        facts["parameters"] = ", ".join(f"{name} {value:.4f}" for name, value in physical)
    return facts
