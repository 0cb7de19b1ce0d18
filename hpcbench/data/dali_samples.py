"""What an application says about its files, so that DALI can read them; imports neither DALI nor torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from staging.errors import DataError, InputError
from staging.formats.regular import opened

if TYPE_CHECKING:
    from torch import Tensor

INDEX_SUFFIX = ".idx"
"""Appended to the name of a TFRecord file: the text file beside it, with a line ``offset size`` per record."""
INDEX_BYTES = 4096
"""Bytes that are read of an index, which has one short line."""
FEW_VALUES = 1024
INDEX_HINT = "make the index while staging, with --staging.transform tfrecord-index"


@dataclass(frozen=True)
class StoredArray:
    """One array of a sample as its file holds it.

    ``finite``, ``smallest`` and ``largest`` are checked in every sample that is read: no NaN or infinity, no value
    below ``smallest`` or above ``largest``. DALI takes as long to find the smallest value of a large array as to read
    the array, so for large arrays torch finds it on the device where the batch arrives.
    """

    shape: tuple[int, ...]
    dtype: Literal["int16", "uint8", "float32"]
    finite: bool = False
    largest: float | None = None
    smallest: float | None = None

    @property
    def is_small(self) -> bool:
        """Whether DALI, rather than torch, finds the smallest value of the array."""
        return math.prod(self.shape) <= FEW_VALUES


@dataclass(frozen=True)
class DaliSamples:
    """The samples of a split for DALI: ``files[i]`` holds the inputs of sample i of the torch dataset.

    ``npy``: arrays of npy version 1.0, with the targets in ``targets_file(files[i])``. ``tfrecord``: uncompressed files
    of one ``tf.train.Example`` each, with their index files beside them; ``features`` names the feature of each array,
    which holds bytes of little-endian integers, or float32 values. ``finish`` turns a stored batch of inputs and one of
    targets into what the items of the torch dataset stack to.
    """

    kind: Literal["npy", "tfrecord"]
    files: Sequence[Path]
    inputs: StoredArray
    targets: StoredArray
    finish: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    targets_file: Callable[[Path], Path] | None = None
    features: tuple[str, str] = ("", "")


def has_dali() -> bool:
    """Whether DALI is installed; it is not imported."""
    return find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None


def index_file(path: Path) -> Path:
    """Where the index of a TFRecord file is."""
    return path.with_name(path.name + INDEX_SUFFIX)


def require_indices(files: Sequence[Path]) -> None:
    """Raise ``DataError`` for the first TFRecord file without an index; each folder is listed once."""
    there = {entry.path for folder in {path.parent for path in files} for entry in os.scandir(folder)}
    for path in files:
        if f"{path}{INDEX_SUFFIX}" not in there:
            raise DataError(path, f"has no index {index_file(path).name} beside it, which DALI needs", INDEX_HINT)


def check_index(path: Path) -> None:
    """Raise ``DataError`` unless the index at ``path`` has one record: its TFRecord file from first to last byte."""
    with opened(path) as file:
        text = bytes(file.read(INDEX_BYTES))
    try:
        lines = [line.split() for line in text.decode("ascii").splitlines()]
        size = path.with_name(path.name.removesuffix(INDEX_SUFFIX)).stat().st_size
        records = [(int(offset), int(length)) for offset, length in lines]
    except OSError as error:
        raise DataError(error.filename, f"cannot be read ({error.strerror})", "check the path") from None
    except ValueError:
        raise DataError(path, "is not an index: each line holds an offset and a size in bytes", INDEX_HINT) from None
    if records != [(0, size)]:
        said = f"{records[0]}" if len(records) == 1 else f"{len(records)} records"
        raise DataError(path, f"says {said} where one of offset and size (0, {size}) is expected", INDEX_HINT)


def refuse_format(key: str, value: str, change: str) -> InputError:
    """The error for a format or compression of the files that DALI has no reader for."""
    return InputError(f"{key} ({value}) is not something that DALI reads; {change}, or use --data.loader torch")
