"""What an application says of its files, so that DALI can read them; imports neither DALI nor torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from staging.errors import DataError, InputError

if TYPE_CHECKING:
    from torch import Tensor

INDEX_SUFFIX = ".idx"
"""Appended to the name of a TFRecord file: the text file of a line ``offset size`` per record beside it."""
INDEX_HINT = "make the index while staging, with --staging.transform tfrecord-index"


@dataclass(frozen=True)
class StoredArray:
    """One array of a sample as its file holds it.

    ``finite`` and ``largest`` are checked in every sample that is read: no NaN or infinity, no value above ``largest``.
    """

    shape: tuple[int, ...]
    dtype: Literal["int16", "uint8", "float32"]
    finite: bool = False
    largest: int | None = None


@dataclass(frozen=True)
class DaliSamples:
    """The samples of a split for DALI: ``files[i]`` are those of sample i of the torch dataset.

    ``npy``: one file per array, of npy version 1.0. ``tfrecord``: one plain file of one ``tf.train.Example`` with its
    index beside it, ``features`` naming each array's feature: bytes of integers (little endian), or float32 values.
    ``finish`` turns the batch of inputs and that of targets, as stored, into what the torch dataset's items stack to.
    """

    kind: Literal["npy", "tfrecord"]
    files: Sequence[tuple[Path, ...]]
    inputs: StoredArray
    targets: StoredArray
    finish: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    features: tuple[str, str] = ("", "")


def index_file(path: Path) -> Path:
    """Where the index of a TFRecord file is."""
    return path.with_name(path.name + INDEX_SUFFIX)


def require_indices(files: Sequence[Path]) -> None:
    """Raise ``DataError`` for the first TFRecord file without an index; each folder is listed once."""
    for folder in sorted({path.parent for path in files}):
        there = {path.name for path in folder.iterdir() if path.name.endswith(INDEX_SUFFIX)}
        for path in files:
            if path.parent == folder and index_file(path).name not in there:
                raise DataError(path, f"has no index {index_file(path).name} beside it, which DALI needs", INDEX_HINT)


def check_index(path: Path) -> None:
    """Raise ``DataError`` unless the index at ``path`` covers its TFRecord file from the first byte to the last."""
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        size = path.with_name(path.name.removesuffix(INDEX_SUFFIX)).stat().st_size
        end = 0
        for offset, length in lines:
            if int(offset) != end or int(length) <= 0:
                raise DataError(path, f"has a record at byte {offset} where {end} is expected", INDEX_HINT)
            end += int(length)
    except OSError as error:
        raise DataError(error.filename, f"cannot be read ({error.strerror})", "check the path") from None
    except ValueError:
        raise DataError(path, "is not an index: each line holds an offset and a size in bytes", INDEX_HINT) from None
    if end != size:
        raise DataError(path, f"covers {end} bytes of a TFRecord file of {size}", INDEX_HINT)


def refuse_format(key: str, value: str, change: str) -> InputError:
    """The error for a form of the files that DALI has no reader for."""
    return InputError(f"{key} ({value}) is nothing that DALI reads; {change}, or use --data.loader torch")
