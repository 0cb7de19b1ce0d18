"""Decompresses deflate-compressed chunks of an HDF5 dataset, and never beyond the size of a chunk.

HDF5's own filter follows a stream however far it grows (``H5Z__filter_deflate``). Filters are undone in the reverse
order of the pipeline, except those that a chunk's mask leaves out (HDF5 file format specification 3.0, III.A.1).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from staging.errors import DataError
from staging.formats.compression import LARGEST_EXPANSION, PIECE, TooLargeError, libdeflate
from staging.formats.reading import have_read

DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE
PIPELINES = ([DEFLATE], [SHUFFLE, DEFLATE])
AGAIN = "copy it again, or remove it from the set"
GROWING = "write it again with gzip, or without compression"
MOST_CHUNKS = 1024
"""HDF5 takes about 4 KB for each chunk of a read, however small the chunk is."""

DAMAGED = (zlib.error, ValueError) + (() if libdeflate is None else (libdeflate.DeflateError,))


def filters_of(dataset: h5py.Dataset) -> list[int]:
    """Numbers of the filters that chunks went through when they were written, in that order."""
    properties = dataset.id.get_create_plist()
    return [int(properties.get_filter(place)[0]) for place in range(properties.get_nfilters())]


def is_on_disk(dataset: h5py.Dataset) -> bool:
    """Whether HDF5 reads the file by a descriptor, which ``get_vfd_handle`` then returns; else it is in memory."""
    return bool(dataset.file.driver == "sec2")


def has_deflated_chunks(dataset: h5py.Dataset) -> bool:
    """Whether ``read_chunks`` reads this dataset."""
    return filters_of(dataset) in PIPELINES and bool(dataset.id.get_type() == h5py.h5t.py_create(dataset.dtype))


def read_chunks(path: Path, key: str, dataset: h5py.Dataset, selection: Sequence[slice]) -> NDArray[Any]:
    """The ``selection``, slices of step 1 for the first dimensions, of a ``dataset`` of deflated chunks.

    Raises ``DataError`` naming ``path`` and ``key`` for filters other than shuffle and deflate, and for a chunk that
    is damaged, or far larger than the array. Raises what h5py raises if HDF5 cannot find a chunk.
    """
    pipeline, chunks, dtype = filters_of(dataset), dataset.chunks, dataset.dtype
    if not has_deflated_chunks(dataset):
        raise DataError(path, f"dataset '{key}' is stored with filters or a type that are not read", GROWING)
    size = prod(chunks) * dtype.itemsize
    if size > max(dataset.nbytes * 2, PIECE):
        raise TooLargeError(path, f"dataset '{key}' of {dataset.nbytes} bytes has chunks of {size} bytes")
    wanted = _ranges(dataset.shape, selection)
    array = np.empty([len(part) for part in wanted], dtype)
    starts = [range(part.start - part.start % step, part.stop, step) for part, step in zip(wanted, chunks, strict=True)]
    few = _few_stored(dataset, starts)
    if few is not None:
        array[...] = dataset.fillvalue
    for place in (product(*starts) if few is None else few) if array.size else ():
        stored = dataset.id.get_chunk_info_by_coord(place)
        if stored.byte_offset is not None and stored.size > size + size // 1000 + PIECE:
            raise TooLargeError(path, f"dataset '{key}' has a chunk of {stored.size} bytes where {size} are expected")
        target, source = _common(place, chunks, wanted)
        if stored.byte_offset is None:
            array[target] = dataset.fillvalue
            continue
        mask, packed = dataset.id.read_direct_chunk(place)
        if is_on_disk(dataset):
            have_read(dataset.file.id.get_vfd_handle(), path, stored.byte_offset, memoryview(packed))
        plain = _plain(path, key, packed, pipeline, mask, size, dtype.itemsize)
        array[target] = np.frombuffer(plain, dtype).reshape(chunks)[source]
    return array


def read_by_library(dataset: h5py.Dataset, selection: Sequence[slice]) -> NDArray[Any]:
    """The ``selection``, slices of step 1 for the first dimensions, of a ``dataset`` without deflate.

    Reads at most ``MOST_CHUNKS`` chunks at a time, so that small chunks take no more memory than large ones. Raises
    what h5py raises.
    """
    wanted = _ranges(dataset.shape, selection)
    if not dataset.chunks or prod(_chunks_of(wanted, dataset.chunks)) <= MOST_CHUNKS:
        return np.asarray(dataset[tuple(selection)])
    array = np.empty([len(part) for part in wanted], dataset.dtype)
    starts = [range(part.start - part.start % n, part.stop, n) for part, n in zip(wanted, dataset.chunks, strict=True)]
    few = _few_stored(dataset, starts)
    if few is not None:
        array[...] = dataset.fillvalue
    for parts in _in_parts(wanted, dataset.chunks) if few is None else _parts_at(few, wanted, dataset.chunks):
        target = (
            slice(part.start - whole.start, part.stop - whole.start) for part, whole in zip(parts, wanted, strict=True)
        )
        array[tuple(target)] = dataset[tuple(slice(part.start, part.stop) for part in parts)]
    return array


def _few_stored(dataset: h5py.Dataset, starts: Sequence[range]) -> list[tuple[int, ...]] | None:
    """Where the stored chunks among those at ``starts`` begin, if few are stored; ``None`` if each is to be looked at.

    A file of a few bytes may claim millions of chunks: those that nobody wrote are not in it, and hold the fill value.
    """
    asked = prod(map(len, starts))
    if asked <= MOST_CHUNKS:  # counting those that are stored may take longer
        return None
    stored = dataset.id.get_num_chunks()
    if stored > MOST_CHUNKS or 2 * stored > asked:
        return None
    places = [tuple(dataset.id.get_chunk_info(number).chunk_offset) for number in range(stored)]
    return [place for place in places if all(at in each for at, each in zip(place, starts, strict=True))]


def _parts_at(places: Sequence[Sequence[int]], wanted: Sequence[range], chunks: Sequence[int]) -> Iterator[list[range]]:
    """The wanted part of each of the chunks that begin at ``places``."""
    for place in places:
        yield [
            range(max(start, part.start), min(start + length, part.stop))
            for start, length, part in zip(place, chunks, wanted, strict=True)
        ]


def _in_parts(wanted: list[range], chunks: Sequence[int]) -> Iterator[list[range]]:
    """Cut along chunk borders, halving the dimension with the most chunks."""
    counts = _chunks_of(wanted, chunks)
    if prod(counts) <= MOST_CHUNKS:
        yield wanted
        return
    axis = counts.index(max(counts))
    part, step = wanted[axis], chunks[axis]
    middle = part.start - part.start % step + counts[axis] // 2 * step
    for half in (range(part.start, middle), range(middle, part.stop)):
        yield from _in_parts([*wanted[:axis], half, *wanted[axis + 1 :]], chunks)


def _chunks_of(wanted: Sequence[range], chunks: Sequence[int]) -> list[int]:
    """How many chunks each of the ranges touches."""
    pairs = zip(wanted, chunks, strict=True)
    return [len(range(part.start - part.start % step, part.stop, step)) for part, step in pairs]


def _ranges(shape: Sequence[int], selection: Sequence[slice]) -> list[range]:
    """The ranges that slices of the first dimensions choose, and the whole of the other dimensions."""
    wanted = [range(*part.indices(length)) for part, length in zip(selection, shape, strict=False)]
    return wanted + [range(length) for length in shape[len(wanted) :]]


def _common(
    place: Sequence[int], chunks: Sequence[int], wanted: Sequence[range]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the wanted part of the chunk at ``place`` is in the result, and where in the chunk."""
    target, source = [], []
    for start, length, part in zip(place, chunks, wanted, strict=True):
        low, high = max(start, part.start), min(start + length, part.stop)
        target.append(slice(low - part.start, high - part.start))
        source.append(slice(low - start, high - start))
    return tuple(target), tuple(source)


def _plain(path: Path, key: str, data: bytes, pipeline: list[int], mask: int, size: int, itemsize: int) -> Any:
    """A chunk of ``size`` bytes as it was before the filters."""
    plain: Any = data
    for number, kind in reversed(list(enumerate(pipeline))):
        if mask >> number & 1:
            continue
        if kind == DEFLATE:
            plain = _inflate(plain, size)
        elif plain is not None and len(plain) == size:
            plain = np.ascontiguousarray(np.frombuffer(plain, np.uint8).reshape(itemsize, -1).T).data.cast("B")
    if plain is None or len(plain) != size:
        raise DataError(path, f"dataset '{key}' cannot be read (a chunk is not {size} sound bytes)", AGAIN)
    return plain


def _inflate(data: bytes, size: int) -> Any | None:
    """The content of a zlib stream; ``None`` if it is damaged or grows beyond ``size`` bytes."""
    if size > LARGEST_EXPANSION * len(data):
        return None
    try:
        if libdeflate is not None:
            return libdeflate.zlib_decompress(data, size)
        stream = zlib.decompressobj()
        plain = stream.decompress(data, size + 1)
        return plain if stream.eof else None
    except DAMAGED:
        return None
