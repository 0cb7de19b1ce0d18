"""HDF5 files: reads a dataset as far as needed, writes a few datasets, and reports every problem in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from math import prod
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import numpy.typing as npt

from staging.atomic import replacing
from staging.errors import DataError
from staging.formats.block import read_block
from staging.formats.hdf5_chunks import filters_of, is_on_disk, read_by_library, read_chunks
from staging.formats.reading import reading_file
from staging.formats.regular import MOST_BYTES, opened, read_at_most

AGAIN = "copy it again, or remove it from the set"
SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_DATASETS = 1000
"""The most datasets of a file that are examined."""
MOST_LINKS = 8
WHOLE_PIECE = 64 << 20
"""Bytes per read of a whole file."""
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
    most: int = MOST_BYTES,
    file: h5py.File | None = None,
) -> npt.NDArray[Any]:
    """Read dataset ``key`` of ``path``, or the ``selection`` of it, in the machine's byte order.

    ``file`` is ``path`` if ``open_hdf5`` has opened it already, which saves as much time as reading a small dataset.
    ``shape`` is the shape that the whole dataset must have (``None`` for any length of an axis) and ``dtype_kind`` the
    kinds of NumPy type that are accepted, such as ``"f"`` or ``"iu"``. If ``shape`` leaves a length open, no more than
    ``most`` bytes are read. Raises ``DataError`` with what was found and what was expected if the file is missing,
    not a regular file, truncated or not HDF5, or if the dataset is missing, of another form or size, in another file,
    or damaged.
    """
    with open_hdf5(path) if file is None else nullcontext(file) as open_file:
        try:
            dataset = _find(path, open_file, key)
            _check(path, key, dataset, shape, dtype_kind)
            if shape is None or None in shape:
                _check_size(path, key, dataset, selection, most)
            array = read_selected(path, key, dataset, selection)
        except DAMAGE as error:
            raise DataError(path, f"dataset '{key}' cannot be read ({_brief(error)})", AGAIN) from None
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check_whole(path: Path, most: int) -> None:
    """Read every dataset of ``path`` to its end, in pieces. Raises ``DataError`` for the first thing wrong with it.

    In addition to what ``read_dataset`` refuses, that includes datasets of more than ``most`` bytes together, and bytes
    after the end of what HDF5 wrote.
    """
    with open_hdf5(path) as file:
        try:
            shapes = _describe(file)
            total = sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes.values())
            if total > most:
                raise DataError(path, f"holds {total} bytes in its datasets where at most {most} are expected", AGAIN)
            for key, (shape, _) in shapes.items():
                dataset = _find(path, file, key)
                rows = max(1, WHOLE_PIECE * shape[0] // max(dataset.nbytes, 1)) if shape else 1
                for start in range(0, shape[0], rows) if shape else (None,):
                    read_selected(path, key, dataset, None if start is None else (slice(start, start + rows),))
        except DAMAGE as error:
            raise DataError(path, f"cannot be read to its end ({_brief(error)})", AGAIN) from None
    _check_end(path)


def write_datasets(path: Path, arrays: Mapping[str, npt.ArrayLike], compression: Literal["gzip"] | None = None) -> None:
    """Write each array as the dataset of its key, complete or not at all; the same arrays give the same bytes.

    Datasets are contiguous, as in the published sets, unless ``compression`` is given; no time stamps are kept.
    """
    try:
        with replacing(path) as temporary, h5py.File(temporary, "w", libver=WRITTEN_FORM, locking=False) as file:
            for key in sorted(arrays):
                array = np.asarray(arrays[key])
                file.create_dataset(key, data=array, compression=compression if array.ndim else None, track_times=False)
    except (OSError, RuntimeError) as error:  # HDF5 reports a full disk only in the text of a RuntimeError
        code = re.search(r"errno = (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def describe(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every dataset in ``path``, by key; no data is read. Raises ``DataError`` as above."""
    with open_hdf5(path) as file:
        try:
            return _describe(file)
        except DAMAGE as error:
            raise DataError(path, f"cannot be read ({_brief(error)})", AGAIN) from None


def _describe(file: h5py.File) -> dict[str, tuple[tuple[int, ...], str]]:
    datasets: dict[str, tuple[tuple[int, ...], str]] = {}

    def visit(name: str, item: object) -> bool | None:
        if isinstance(item, h5py.Dataset):
            datasets[name] = (tuple(item.shape or ()), str(item.dtype))
        return True if len(datasets) >= MOST_DATASETS else None

    file.visititems(visit)
    return datasets


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """``path`` open for reading. Raises ``DataError`` unless it is a regular file that HDF5 can open."""
    with opened(path) as descriptor:
        try:
            # By its descriptor: whatever has the name by now, this is a regular file.
            # Without locks, since a dataset is only read and shared filesystems often refuse locks.
            file = h5py.File(f"/proc/self/fd/{descriptor.fileno()}", "r", locking=False)
        except DAMAGE as error:
            reason = str(error)
            if "signature not found" in reason:
                raise DataError(path, "is not an HDF5 file", "check data.format, or copy it again") from None
            raise DataError(path, f"cannot be opened ({_brief(error)})", AGAIN) from None
        with file:
            yield file


def _find(path: Path, file: h5py.File, key: str) -> h5py.Dataset:
    """Dataset ``key``, whose data are in this file and not in another that a link leads to."""
    try:
        refuse_links(path, file, key)
        dataset = file[key]
    except KeyError:
        dataset = None
    if not isinstance(dataset, h5py.Dataset):
        raise DataError(path, f"has no dataset '{key}', it has {_names(file)}", "check data.format and data.root")
    if dataset.shape is None:
        raise DataError(path, f"dataset '{key}' is empty", AGAIN)
    refuse_other_files(path, key, dataset)
    return dataset


def refuse_other_files(path: Path, key: str, dataset: h5py.Dataset) -> None:
    """Raise ``DataError`` if a dataset's data are in other files: HDF5 would open any, and wait for a pipe."""
    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL or properties.get_external_count():
        raise DataError(path, f"dataset '{key}' has its data in other files", "write it again as one file")


def refuse_links(path: Path, file: h5py.File, key: str, depth: int = 0) -> None:
    """Raise ``DataError`` if the path to ``key`` leads through a link to another file, or never ends."""
    names = [name for name in key.split("/") if name not in ("", ".")]
    for number in range(1, len(names) + 1):
        name = "/".join(names[:number])
        if not file.id.links.exists(name.encode()):
            raise KeyError(name)
        if file.id.links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD:
            continue
        link = file.get(name, getlink=True)
        if not isinstance(link, h5py.SoftLink) or depth > MOST_LINKS:
            raise DataError(path, f"'{key}' is a link to another file", "write it again as one file")
        before = "" if link.path.startswith("/") else "/".join(names[: number - 1]) + "/"
        refuse_links(path, file, f"{before}{link.path}/{'/'.join(names[number:])}", depth + 1)
        return


def read_selected(path: Path, key: str, dataset: h5py.Dataset, selection: Selection | None) -> npt.NDArray[Any]:
    """The ``selection`` of a dataset, or all of it. Raises ``DataError``, and one of ``DAMAGE``.

    Contiguous data are read directly, without the library, so that they can be checked on the way.
    """
    slices = [part for part in selection or () if isinstance(part, slice) and part.step in (None, 1)]
    is_of_slices = len(slices) == len(selection or ())
    if is_of_slices and is_plain(dataset):
        place, descriptor = dataset.id.get_offset(), dataset.file.id.get_vfd_handle()
        return read_block(descriptor, path, place, dataset.shape, dataset.dtype, slices)
    filters = set(filters_of(dataset))
    if h5py.h5z.FILTER_DEFLATE not in filters:
        reading_file(path)
    if filters <= {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}:  # their output is as large as their input
        return read_by_library(dataset, slices) if is_of_slices else np.asarray(dataset[selection])
    return read_chunks(path, key, dataset, slices) if is_of_slices else read_chunks(path, key, dataset, ())[selection]


def is_plain(dataset: h5py.Dataset) -> bool:
    """Whether a dataset's values are in a file on disk, in one piece, as NumPy has them in memory."""
    kind = dataset.dtype.kind in "fiu" and dataset.id.get_type() == h5py.h5t.py_create(dataset.dtype)
    # One that was never written has no bytes in the file, and behind a user block HDF5 still gives it an offset.
    written = dataset.id.get_offset() is not None and dataset.id.get_storage_size() == dataset.nbytes
    return bool(kind and dataset.shape and written and is_on_disk(dataset))


def _check_size(path: Path, key: str, dataset: h5py.Dataset, selection: Selection | None, most: int) -> None:
    shape = dataset.shape or ()
    parts = [part for part in selection or () if isinstance(part, slice)]
    lengths = [len(range(*part.indices(length))) for part, length in zip(parts, shape, strict=False)]
    size = prod(lengths + list(shape[len(lengths) :])) * dataset.dtype.itemsize
    if size > most:
        problem = f"dataset '{key}' of shape {shape} has {size} bytes where at most {most} are expected"
        raise DataError(path, problem, AGAIN)


def _check_end(path: Path) -> None:
    """Raise ``DataError`` for bytes after the end of file that the superblock states (HDF5 file format 3.0, II.A)."""
    with opened(path) as file:
        head, size = read_at_most(file, 96), os.fstat(file.fileno()).st_size
    version, modern = head[8], head[8] >= 2
    if bytes(head[:8]) != SIGNATURE or head[9 if modern else 13] != 8:  # after a user block, or of other offsets
        return
    start = 12 if modern else 24 + 4 * (version == 1)
    base, end = (int.from_bytes(head[at : at + 8], "little") for at in (start, start + 16))
    if size > base + end:
        raise DataError(path, f"has {size - base - end} bytes behind the end of its HDF5 data", AGAIN)


def _check(path: Path, key: str, dataset: h5py.Dataset, shape: Sequence[int | None] | None, kind: str | None) -> None:
    actual_shape = tuple(dataset.shape or ())
    if shape is not None and (
        len(actual_shape) != len(shape)
        or any(want not in (None, got) for want, got in zip(shape, actual_shape, strict=True))
    ):
        raise DataError(
            path,
            f"dataset '{key}' has shape {actual_shape} where {tuple(shape)} is expected",
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
