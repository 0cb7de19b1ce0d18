"""One large HDF5 file as a source: each row of its datasets is an entry, read as the npy file that it lands as."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from staging.counters import Counters
from staging.errors import DataError, InputError
from staging.formats.compression import LARGEST_EXPANSION
from staging.formats.hdf5 import AGAIN, DAMAGE, refuse_other_files
from staging.formats.hdf5_chunks import has_deflated_chunks, read_by_library, read_chunks
from staging.formats.hdf5_raw import raw_offset
from staging.formats.npy import npy_header
from staging.source.listing import UNKNOWN, Listing, Names, refuse_time
from staging.source.retry import retrying
from staging.source.sources import Reader

BLOCK_ROWS = 16
BLOCK_BYTES = 32 << 20
"""The most rows, and the most bytes, per read of a chunked dataset."""
CHUNK_BYTES = 256 << 20
"""The most bytes per read if the rows of one chunk are more than that."""
LARGEST_ROW = 8 << 30
"""The most bytes of a row read through HDF5, which needs memory for all of it; sixteen times CosmoFlow's universes."""
LARGEST_UNSTORED = 1 << 30
"""Bytes that a dataset may have beyond what its stored chunks can hold, since chunks never written are fill values."""


class HDF5Source:
    """Row ``r`` of dataset ``group/data`` is the entry ``<r>_data.npy``, ``r`` in eight digits, as by ``numpy.save``.

    ``datasets`` is ``None`` for all of them. They must have the same first axis, so that the entries of one sample are
    next to each other. Their numbers are in the machine's byte order. Raises ``DataError`` for a file that is not HDF5,
    a dataset that does not exist or holds no numbers, and first axes that differ.
    """

    def __init__(self, path: Path, datasets: Sequence[str] | None = None, *, retries: int = 3) -> None:
        self.path = path
        self.skipped = ""
        self.sparse: dict[int, int] = {}  # rows have no blocks of their own
        self.retries = retries
        try:
            status = path.stat()
            refuse_time(path, status.st_mtime_ns)
            with h5py.File(path, "r", locking=False) as file:
                self.columns = _columns(path, file, datasets)
        except FileNotFoundError:
            raise DataError(path, "does not exist", "check the source") from None
        except DAMAGE as error:
            raise DataError(path, f"cannot be read as HDF5 ({_brief(error)})", AGAIN) from None
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
        self.listing = self._list()

    def reader(self) -> Reader:
        """A reader that opens the file itself. Raises ``DataError`` if it is not the file of the listing."""
        return _RowReader(self)

    def unchanged(self, status: os.stat_result) -> bool:
        """Whether the file is still the one that was listed."""
        return (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)

    def _list(self) -> Listing:
        rows = self.columns[0].rows
        digits = max(8, len(str(rows - 1)))
        names = Names.of(f"{row:0{digits}d}_{column.label}.npy" for row in range(rows) for column in self.columns)
        sizes = np.tile(np.array([column.entry_bytes for column in self.columns], np.int64), rows)
        return Listing(names, sizes, np.full(len(sizes), self.mtime_ns), np.full(len(sizes), UNKNOWN, np.int64))


class _Column:
    """A dataset: the form of its rows, and where they are if they can be read without HDF5."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.key = str(dataset.name)
        self.label = self.key.rpartition("/")[2]
        self.dtype = np.dtype(dataset.dtype.newbyteorder("="))
        self.rows = int(dataset.shape[0])
        self.header = npy_header(dataset.shape[1:], self.dtype)
        self.row_bytes = int(np.prod(dataset.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        self.entry_bytes = len(self.header) + self.row_bytes
        self.offset = raw_offset(dataset)
        self.chunk_rows = int(dataset.chunks[0]) if dataset.chunks else 1
        self.block_rows = _block_rows(self.chunk_rows, self.row_bytes)
        self.stored_bytes = int(dataset.id.get_storage_size())

    def stored(self, first: int) -> int:
        """Bytes in the file of all chunks with rows of the block from ``first`` on; chunks count as equally large."""
        stop = min(first + self.block_rows, self.rows)
        first, stop = first - first % self.chunk_rows, min(stop + -stop % self.chunk_rows, self.rows)
        return self.stored_bytes * stop // self.rows - self.stored_bytes * first // self.rows


class _RowReader:
    """Reads plain datasets directly, exactly the bytes asked for, and others in blocks of neighbouring rows."""

    def __init__(self, source: HDF5Source) -> None:
        self.counters = Counters()
        self._source = source
        self._columns = source.columns
        self._blocks: dict[int, tuple[int, memoryview]] = {}
        self._datasets: dict[int, h5py.Dataset] = {}
        self._file: h5py.File | None = None
        self._descriptor = -1
        self._retries = source.retries, self._count_retry
        try:
            self._descriptor = os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._refuse_change()
            self.counters.files_read = 1  # however many rows are read from it
        except OSError as error:
            raise DataError(source.path, f"cannot be read ({error.strerror})", "check its permissions") from None
        except DataError:
            self.close()
            raise

    def read_into(self, entry: int, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the npy file of an entry from ``offset`` on."""
        row, number = divmod(entry, len(self._columns))
        column = self._columns[number]
        head = column.header[offset : offset + len(buffer)]
        buffer[: len(head)] = head
        if len(head) < len(buffer):
            self._read_row(row, number, max(offset - len(column.header), 0), buffer[len(head) :])

    def finish(self, entry: int, *, is_last: bool = True) -> None:
        """Raise ``DataError`` if the file has changed since it was listed."""
        self._refuse_change()
        self.counters.metadata_operations += 1

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._blocks.clear()

    def _read_row(self, row: int, number: int, start: int, buffer: memoryview) -> None:
        column = self._columns[number]
        if start + len(buffer) > column.row_bytes:
            raise DataError(self._source.path, f"row {row} of '{column.key}' has only {column.row_bytes} bytes", AGAIN)
        if column.offset is not None:
            self._read_plain(column, column.offset + row * column.row_bytes + start, buffer)
            return
        first, block = self._block(row, number)
        start += (row - first) * column.row_bytes
        buffer[:] = block[start : start + len(buffer)]

    def _read_plain(self, column: _Column, start: int, buffer: memoryview) -> None:
        done = 0
        while done < len(buffer):
            try:
                got = retrying(partial(os.preadv, self._descriptor, [buffer[done:]], start + done), *self._retries)
            except OSError as error:
                problem = f"dataset '{column.key}' cannot be read ({error.strerror})"
                raise DataError(self._source.path, problem, AGAIN) from error
            if not got:
                raise DataError(self._source.path, f"dataset '{column.key}' is cut short", AGAIN)
            done += got
        self.counters.bytes_read += done

    def _block(self, row: int, number: int) -> tuple[int, memoryview]:
        """The block of rows that contains ``row``, and the number of its first row; one block per dataset is kept."""
        column = self._columns[number]
        first = row - row % column.block_rows
        if number not in self._blocks or self._blocks[number][0] != first:
            self._blocks.pop(number, None)
            try:
                rows = np.ascontiguousarray(self._rows(number, slice(first, first + column.block_rows)), column.dtype)
            except DAMAGE as error:
                problem = f"dataset '{column.key}' cannot be read from row {first} on ({_brief(error)})"
                raise DataError(self._source.path, problem, AGAIN) from None
            self._blocks[number] = first, _bytes_of(rows)
            self.counters.bytes_read += column.stored(first)
        return self._blocks[number]

    def _rows(self, number: int, part: slice) -> npt.NDArray[Any]:
        dataset = self._dataset(number)
        if has_deflated_chunks(dataset):  # HDF5 would follow a chunk however far it grows, or crash on a forged index
            return read_chunks(self._source.path, self._columns[number].key, dataset, [part])
        return read_by_library(dataset, [part])

    def _count_retry(self) -> None:
        self.counters.retries += 1

    def _dataset(self, number: int) -> h5py.Dataset:
        if self._file is None:
            self._file = h5py.File(f"/proc/self/fd/{self._descriptor}", "r", locking=False)
        if number not in self._datasets:
            self._datasets[number] = self._file[self._columns[number].key]
        return self._datasets[number]

    def _refuse_change(self) -> None:
        # checks the open file and not its name: another file put in its place meanwhile does no harm
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            told = f"cannot be read ({error.strerror})"
            raise DataError(self._source.path, told, "stage again when nothing replaces the file") from None
        if not self._source.unchanged(status):
            raise DataError(self._source.path, "changed while it was staged", "stage again when nothing writes to it")


def _columns(path: Path, file: h5py.File, datasets: Sequence[str] | None) -> list[_Column]:
    selected = _find(path, file, datasets)
    lengths = {str(dataset.name): dataset.shape[0] for dataset in selected}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"'{key}' {length}" for key, length in list(lengths.items())[:8])
        raise DataError(path, f"has datasets of different first axes: {said}", "name those of one length")
    columns = sorted((_Column(dataset) for dataset in selected), key=lambda column: f"{column.label}.npy")
    for one, other in pairwise(columns):
        if one.label == other.label:
            raise DataError(path, f"datasets '{one.key}' and '{other.key}' have the same last name", "name one of them")
    if not columns or not columns[0].rows:
        raise DataError(path, "has no rows", "check the source")
    return columns


def _find(path: Path, file: h5py.File, datasets: Sequence[str] | None) -> list[h5py.Dataset]:
    """The datasets that were asked for, all of numbers and with a first axis."""
    there: dict[str, h5py.Dataset] = {}
    file.visititems(lambda name, item: there.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    wanted = list(there) if datasets is None else [key.strip("/") for key in datasets]
    if len(set(wanted)) < len(wanted):
        raise InputError(f"datasets {', '.join(wanted)} of {path} name one twice; leave it out")
    for key in wanted:
        if key not in there:
            known = ", ".join(f"'{name}'" for name in list(there)[:8]) or "none"
            raise DataError(path, f"has no dataset '{key}', it has {known}", "name one of these")
        if there[key].dtype.kind not in "fiubc":
            raise DataError(path, f"dataset '{key}' is {there[key].dtype}, not plain numbers", "name others")
        if not there[key].shape:
            raise DataError(path, f"dataset '{key}' has no axis of samples", "name others")
        refuse_other_files(path, key, there[key])
        _check_stored_size(path, key, there[key])
    return [there[key] for key in wanted]


def _check_stored_size(path: Path, key: str, dataset: h5py.Dataset) -> None:
    """Refuse a dataset that claims to be much larger than its stored bytes can be, or whose rows are too large."""
    if raw_offset(dataset) is not None:
        return  # its bytes are in the file
    row = int(np.prod(dataset.shape[1:], dtype=object)) * dataset.dtype.itemsize
    if row > LARGEST_ROW:
        problem = f"dataset '{key}' has rows of {row} bytes, at most {LARGEST_ROW} are read"
        raise DataError(path, problem, "store it without chunks, or name other datasets")
    size, stored = row * int(dataset.shape[0]), dataset.id.get_storage_size()
    if size > LARGEST_EXPANSION * stored + LARGEST_UNSTORED:
        problem = f"dataset '{key}' claims {size} bytes, of which {stored} are stored"
        raise DataError(path, problem, "check the source, or name other datasets")


def _block_rows(chunk_rows: int, row_bytes: int) -> int:
    """Rows to read at a time: whole chunks if these are not too large, since HDF5 decodes a chunk as a whole."""
    rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(row_bytes, 1)))
    if chunk_rows <= rows:
        return rows // chunk_rows * chunk_rows
    return chunk_rows if chunk_rows * row_bytes <= CHUNK_BYTES else rows


def _bytes_of(rows: npt.NDArray[Any]) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
