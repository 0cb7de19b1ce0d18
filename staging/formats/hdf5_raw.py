"""Finds the bytes of a contiguous HDF5 dataset in its file, so that they can be read without HDF5's global lock."""

from __future__ import annotations

import h5py


def raw_offset(dataset: h5py.Dataset) -> int | None:
    """Offset of the first byte of ``dataset`` in its file; ``None`` unless it is stored whole, plain, and there.

    Plain means: contiguous, numbers in the machine's byte order, written at least once, and in this file.
    """
    properties = dataset.id.get_create_plist()
    plain = properties.get_layout() == h5py.h5d.CONTIGUOUS and not properties.get_external_count()
    if not plain or dataset.dtype.kind not in "fiu" or not dataset.dtype.isnative or not _whole_items(dataset):
        return None
    offset = dataset.id.get_offset()
    return None if offset is None else int(offset)


def _whole_items(dataset: h5py.Dataset) -> bool:
    # HDF5 allows integers of odd precision in a wider type, which only HDF5 can read
    kind = dataset.id.get_type()
    return bool(kind == h5py.h5t.py_create(dataset.dtype) and dataset.id.get_storage_size() == dataset.nbytes)
