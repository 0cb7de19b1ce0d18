"""NumPy's npy files of one array: headers are checked before any data are read, and nothing is unpickled."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from staging.atomic import replacing
from staging.errors import DataError
from staging.formats.block import fill, read_block
from staging.formats.regular import MOST_BYTES, opened

AGAIN = "copy it again, or remove it from the set"
HEAD = 128
"""Size of the headers that NumPy writes for arrays of a few dimensions, in bytes."""
MOST_HEADER = 1 << 17


def read_array(
    path: Path,
    *,
    shape: Sequence[int | None],
    dtype: npt.DTypeLike,
    selection: Sequence[slice] | None = None,
    most: int = MOST_BYTES,
) -> npt.NDArray[Any]:
    """Read the array of ``path``, of exactly ``shape`` (``None``: any length) and ``dtype``, in C order.

    For a ``selection``, slices of step 1 for the first dimensions, little more than its own bytes is read. Raises
    ``DataError`` for a file that is missing, not a regular file, not npy, of another shape or type, not of the right
    size, or, if ``shape`` leaves a length open, of an array of more than ``most`` bytes.
    """
    with opened(path) as raw:
        head = io.BytesIO(_first_bytes(raw))
        found_shape, fortran, found_dtype = _header(head, path)
        _check(path, found_shape, fortran, found_dtype, tuple(shape), np.dtype(dtype))
        start = head.tell()
        there, said = os.fstat(raw.fileno()).st_size - start, math.prod(found_shape) * found_dtype.itemsize
        if there != said:
            raise DataError(path, f"holds {there} bytes of data where its header says {said}", AGAIN)
        if None in shape and said > most:
            raise DataError(path, f"holds {said} bytes, and at most {most} are read", "remove it from the set")
        if selection is not None:
            return read_block(raw.fileno(), path, start, found_shape, found_dtype, selection)
        array = np.empty(found_shape, found_dtype)
        fill(raw.fileno(), path, array.reshape(-1).view(np.uint8).data, start)
        return array


def write_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write ``array`` in C order, complete or not at all; the same array gives the same bytes."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        npy_format.write_array(file, np.asarray(array, order="C"), allow_pickle=False)


def npy_header(shape: tuple[int, ...], dtype: npt.DTypeLike) -> bytes:
    """The header of an npy file (version 1.0) of ``shape`` and ``dtype`` in C order, as ``numpy.save`` writes it.

    The array's bytes follow it.
    """
    described: dict[str, Any] = {
        "descr": npy_format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": False,
        "shape": shape,
    }
    file = io.BytesIO()
    npy_format.write_array_header_1_0(file, described)
    return file.getvalue()


def parse_header(data: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int] | None:
    """Shape, whether in Fortran order, type, and length of the header that ``data`` begins with.

    ``None`` if ``data`` ends before the header does. Raises ``DataError`` naming ``name`` for anything but npy.
    """
    magic = npy_format.MAGIC_PREFIX
    if data[: len(magic)] != magic[: len(data)]:
        raise DataError(name, "is not an npy file", AGAIN)
    length = _header_bytes(data)
    if length is None or len(data) < length:
        return None
    return *_header(io.BytesIO(data), name), length


def _header_bytes(data: bytes) -> int | None:
    """The length that the header at the start of ``data`` states; ``None`` if ``data`` ends before stating it."""
    version = len(npy_format.MAGIC_PREFIX)
    width = 2 if data[version : version + 1] == b"\x01" else 4
    before = version + 2 + width
    return None if len(data) < before else before + int.from_bytes(data[before - width : before], "little")


def _first_bytes(file: io.FileIO) -> bytes:
    """The header and at most ``HEAD`` bytes of what follows; only the beginning of a header that claims to be huge."""
    first = file.read(HEAD)
    rest = min(_header_bytes(first) or 0, MOST_HEADER) - len(first)
    return first + file.read(rest) if rest > 0 else first


def _header(file: BinaryIO, path: Path | str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy_format.read_magic(file)
        if version == (1, 0):
            return npy_format.read_array_header_1_0(file)
        if version == (2, 0):
            return npy_format.read_array_header_2_0(file)
    except OSError:
        raise
    except Exception as error:  # NumPy parses the header as Python, and damage gives whatever that parser raises
        reason = " ".join(str(error).split())[:120]
        raise DataError(path, f"is not an npy file ({reason})", AGAIN) from None
    raise DataError(path, f"is an npy file of version {version}, not 1.0 or 2.0", "write it again with numpy.save")


def _check(
    path: Path,
    found_shape: tuple[int, ...],
    fortran: bool,
    found_dtype: np.dtype[Any],
    shape: tuple[int | None, ...],
    dtype: np.dtype[Any],
) -> None:
    if found_dtype != dtype:
        raise DataError(path, f"holds {found_dtype} where {dtype} is expected", "check data.format, or write it again")
    if len(found_shape) != len(shape) or any(
        got < 0 or want not in (None, got) for want, got in zip(shape, found_shape, strict=True)
    ):
        raise DataError(path, f"has shape {found_shape} where {shape} is expected", "set the data sizes to the file's")
    if fortran and len(found_shape) > 1:
        raise DataError(path, "is in Fortran order", "write it again in C order")
