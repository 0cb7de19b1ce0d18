"""Transform ``hdf5-to-npy``: datasets of an HDF5 file become npy files; nothing is written in between.

``hdf5-to-npy:data=climate/data@float32,label=climate/labels_0@uint8`` is the default, for DeepCAM: each option is a
part of the sample, the dataset that holds it, and the new type if its type is to change. ``data-X.h5`` becomes
``data-X.npy`` and ``label-X.npy``, the npy form of that dataset; any other ``X.h5`` becomes ``X_data.npy`` and
``X_label.npy``. A file whose name matches the option ``keep`` (``stats.h5``, a shell pattern) lands as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from staging.errors import DataError, InputError
from staging.formats.compression import LARGEST_EXPANSION
from staging.formats.hdf5 import AGAIN, DAMAGE, read_selected, refuse_links, refuse_other_files
from staging.formats.hdf5_raw import raw_offset
from staging.formats.npy import npy_header
from staging.formats.regular import MOST_BYTES
from staging.landing.transform.options import Options
from staging.landing.transform.whole import Output, WholeTransform, byte_view

DEEPCAM = {"data": "climate/data@float32", "label": "climate/labels_0@uint8"}
KEPT = "stats.h5"
SUFFIXES = (".h5", ".hdf5")
MOST_UNSTORED = 16 << 20
"""Bytes of an array beyond what its stored chunks can hold; chunks that nobody wrote are fill values."""
USE_IN_PLACE = 0x2 | 0x4  # H5LT_FILE_IMAGE_DONT_COPY and _DONT_RELEASE, of HDF5's high-level library


class HDF5ToNpy(WholeTransform):
    """Each of ``parts`` (its name: dataset, or dataset@dtype) as an npy file; files that match ``keep`` land as is."""

    suffixes = SUFFIXES

    def __init__(self, parts: Mapping[str, str] = DEEPCAM, keep: str = KEPT) -> None:
        self.keep = keep
        self.parts = {part: _dataset(part, text) for part, text in parts.items()}

    @classmethod
    def from_options(cls, options: Options) -> HDF5ToNpy:
        """The transform with the options after its name: parts of a sample, and ``keep``."""
        parts = {key: value for key, value in options.items() if key != "keep"}
        return cls(parts or DEEPCAM, options.get("keep", KEPT))

    def names(self, name: str) -> list[str]:
        """One npy file per part."""
        folder, slash, base = name.rpartition("/")
        if fnmatchcase(base, self.keep):
            return [name]
        stem = next((base.removesuffix(suffix) for suffix in SUFFIXES if base.endswith(suffix)), base)
        if stem.startswith("data-"):
            return [f"{folder}{slash}{part}-{stem.removeprefix('data-')}.npy" for part in self.parts]
        return [f"{folder}{slash}{stem}_{part}.npy" for part in self.parts]

    def output_bytes(self, name: str, size: int) -> int:
        """The size of the file: the space of its other datasets makes room for the headers."""
        return size

    def convert(self, name: str, data: memoryview) -> list[Output]:
        """The arrays; a plain dataset is a view of ``data``. Raises ``DataError`` if one is not as stated."""
        names = self.names(name)
        if names == [name]:
            return [(name, [data])]
        outputs: list[Output] = []
        try:
            with h5py.File(h5py.h5f.open_file_image(data, USE_IN_PLACE)) as file:
                for output, (key, dtype) in zip(names, self.parts.values(), strict=True):
                    array = _read(name, file, key, dtype, data)
                    outputs.append((output, [npy_header(array.shape, array.dtype), byte_view(array)]))
        except DAMAGE as error:
            reason = " ".join(str(error).split())[:160]
            raise DataError(name, f"is not a sound HDF5 file ({reason})", AGAIN) from None
        return outputs


def _dataset(part: str, text: str) -> tuple[str, np.dtype[Any] | None]:
    key, _, dtype = text.partition("@")
    try:
        return key, np.dtype(dtype) if dtype else None
    except TypeError:
        raise InputError(f"transform 'hdf5-to-npy' has no type '{dtype}' for {part}; use one of NumPy's") from None


def _read(name: str, file: h5py.File, key: str, dtype: np.dtype[Any] | None, data: memoryview) -> npt.NDArray[Any]:
    with suppress(KeyError):
        refuse_links(Path(name), file, key)
    dataset = file.get(key)
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise DataError(name, f"has no dataset '{key}'", "set hdf5-to-npy:part=dataset to the file's, or leave it out")
    if dataset.dtype.kind not in "fiub":
        raise DataError(name, f"dataset '{key}' is {dataset.dtype}, not numbers", "leave it out")
    refuse_other_files(Path(name), key, dataset)
    offset = raw_offset(dataset)
    array: npt.NDArray[Any]
    if offset is None:
        if dataset.nbytes > MOST_BYTES:
            raise DataError(name, f"dataset '{key}' has {dataset.nbytes} bytes, more than {MOST_BYTES}", AGAIN)
        stored = dataset.id.get_storage_size()
        if dataset.nbytes > LARGEST_EXPANSION * stored + MOST_UNSTORED:
            raise DataError(name, f"dataset '{key}' claims {dataset.nbytes} bytes, of which {stored} are stored", AGAIN)
        array = read_selected(Path(name), key, dataset, None)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    else:
        array = np.frombuffer(data, dataset.dtype, dataset.size, offset).reshape(dataset.shape)
    if dtype is None or dtype == array.dtype:
        return array
    return _cast(name, key, array, dtype)


def _cast(name: str, key: str, stored: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """``stored`` as ``dtype``: integers keep their values, and floating point is rounded, but not to infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        cast = stored.astype(dtype)
        if (wrong := _is_other(cast, stored)).any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            problem = f"dataset '{key}' has {stored[place]} at {place}, which {dtype} does not hold"
            raise DataError(name, problem, "set another type in hdf5-to-npy:part=dataset@type")
    return cast


def _is_other(cast: npt.NDArray[Any], stored: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values of ``cast`` are not those of ``stored``, apart from the rounding of floating point."""
    if cast.dtype.kind != "f":
        return np.asarray(cast != stored, np.bool_)
    if stored.dtype.kind == "f":
        return np.asarray(np.isinf(cast) & ~np.isinf(stored), np.bool_)
    if stored.dtype.kind == "b":
        return np.zeros(stored.shape, np.bool_)
    above = cast.astype(np.float64) >= float(np.iinfo(stored.dtype).max) + 1  # of which no integer comes back
    return np.asarray(above | np.isinf(cast) | (cast.astype(stored.dtype) != stored), np.bool_)
