"""HDF5 files: one dataset read as far as it is needed, a few datasets written, every problem told in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import numpy.typing as npt

from staging.atomic import replacing
from staging.errors import DataError

AGAIN = "copy it again, or remove it from the set"
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)
WRITTEN_FORM = ("earliest", "v110")  # readable by every HDF5 since 1.8
KINDS = {"f": "floating point", "i": "integer", "u": "unsigned integer", "b": "boolean"}

Selection = tuple[slice | int | list[int], ...]


def read_dataset(
    path: Path,
    key: str,
    *,
    shape: Sequence[int | None] | None = None,
    dtype_kind: str | None = None,
    selection: Selection | None = None,
) -> npt.NDArray[Any]:
    """Read dataset ``key`` of ``path``, or the ``selection`` of it, in the machine's byte order.

    ``shape`` is what the whole dataset must have (``None`` for any length of an axis) and ``dtype_kind`` the kinds of
    NumPy type that are accepted, such as ``"f"`` or ``"iu"``. Raises ``DataError`` with what was found and what was
    expected when the file is missing, truncated or not HDF5, or the dataset is missing, of another form or damaged.
    """
    with _open(path) as file:
        try:
            dataset = file.get(key)
            if not isinstance(dataset, h5py.Dataset):
                there = _names(file)
                raise DataError(path, f"has no dataset '{key}', it has {there}", "check data.format and data.root")
            _check(path, key, dataset, shape, dtype_kind)
            array = np.asarray(dataset[() if selection is None else selection])
        except DAMAGE as error:
            raise DataError(path, f"dataset '{key}' cannot be read ({_brief(error)})", AGAIN) from None
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def write_datasets(path: Path, arrays: Mapping[str, npt.ArrayLike], compression: Literal["gzip"] | None = None) -> None:
    """Write each array as the dataset of its key, complete or not at all; the same arrays give the same bytes.

    Datasets are contiguous, as in the published sets, unless ``compression`` is given; no time stamps are kept.
    """
    try:
        with replacing(path) as temporary, h5py.File(temporary, "w", libver=WRITTEN_FORM, locking=False) as file:
            for key in sorted(arrays):
                array = np.asarray(arrays[key])
                file.create_dataset(key, data=array, compression=compression if array.ndim else None, track_times=False)
    except (OSError, RuntimeError) as error:  # HDF5 tells of a full disk only in the text of a RuntimeError
        code = re.search(r"errno = (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def describe(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every dataset in ``path``, by key; no data is read. Raises ``DataError`` as above."""
    with _open(path) as file:
        try:
            return _describe(file)
        except DAMAGE as error:
            raise DataError(path, f"cannot be read ({_brief(error)})", AGAIN) from None


def _describe(file: h5py.File) -> dict[str, tuple[tuple[int, ...], str]]:
    found: dict[str, tuple[tuple[int, ...], str]] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = (tuple(item.shape or ()), str(item.dtype))

    file.visititems(visit)
    return found


def _open(path: Path) -> h5py.File:
    # without locks, since a set is only read and shared filesystems often refuse them
    try:
        return h5py.File(path, "r", locking=False)
    except FileNotFoundError:
        raise DataError(path, "does not exist", "check data.root") from None
    except OSError as error:
        reason = str(error)
        if "signature not found" in reason:
            raise DataError(path, "is not an HDF5 file", "check data.format, or copy it again") from None
        raise DataError(path, f"cannot be opened ({_brief(error)})", AGAIN) from None


def _check(path: Path, key: str, dataset: h5py.Dataset, shape: Sequence[int | None] | None, kind: str | None) -> None:
    found = tuple(dataset.shape or ())
    if shape is not None and (
        len(found) != len(shape) or any(want not in (None, got) for want, got in zip(shape, found, strict=True))
    ):
        raise DataError(
            path,
            f"dataset '{key}' has shape {found} where {tuple(shape)} is expected",
            "set the data sizes to the file's",
        )
    if kind is not None and dataset.dtype.kind not in kind:
        wanted = " or ".join(KINDS.get(letter, letter) for letter in kind)
        raise DataError(path, f"dataset '{key}' is {dataset.dtype} where {wanted} is expected", "write it again")


def _names(file: h5py.File) -> str:
    names = list(_describe(file))
    return ", ".join(f"'{name}'" for name in names[:8]) + (" ..." if len(names) > 8 else "") if names else "none"


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
