"""npy files in memory: the header for an array that is written elsewhere, exactly as ``numpy.save`` writes it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format


def npy_header(shape: tuple[int, ...], dtype: npt.DTypeLike) -> bytes:
    """The header of an npy file (version 1.0) of ``shape`` and ``dtype`` in C order; the array's bytes follow it."""
    described: dict[str, Any] = {
        "descr": npy_format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": False,
        "shape": shape,
    }
    file = io.BytesIO()
    npy_format.write_array_header_1_0(file, described)
    return file.getvalue()
