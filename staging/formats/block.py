"""Reads a block of an array stored in C order in a file, without most of the bytes around it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staging.errors import DataError
from staging.formats.reading import reading

PIECE = 1 << 20
"""Bytes per read if an observer watches: they are still in a core's cache when it checks them."""
SMALLEST_GAP = 4096
"""The smallest gap worth leaving out: less is in the same page, and costs more calls than it saves."""


def read_block(
    file: int, path: Path, start: int, shape: Sequence[int], dtype: np.dtype[Any], block: Sequence[slice]
) -> NDArray[Any]:
    """The ``block`` of an array of ``shape`` that begins at byte ``start`` of the open ``file``, in C order.

    ``block`` has slices of step 1 for the first dimensions; dimensions that it leaves out are whole. Raises
    ``DataError`` naming ``path`` if the file ends before the block does, and ``OSError`` if it cannot be read.
    """
    whole = [range(size) for size in shape]
    wanted = [range(*part.indices(size)) for part, size in zip(block, shape, strict=False)] + whole[len(block) :]
    strides = [prod(shape[dim + 1 :]) * dtype.itemsize for dim in range(len(shape))]
    gaps = [(size - len(part)) * stride for size, part, stride in zip(shape, wanted, strides, strict=True)]
    # The last dimension in which runs of bytes are left out; later ones are read whole and cut in memory.
    last = max((dim for dim, gap in enumerate(gaps) if gap >= SMALLEST_GAP), default=0)
    read = wanted[: last + 1] + whole[last + 1 :]
    array = np.empty([len(part) for part in read], dtype)
    view = array.reshape(-1).view(np.uint8).data
    run, done = len(read[last]) * strides[last], 0
    for place in product(*read[:last]) if run else ():
        first = sum(number * stride for number, stride in zip((*place, read[last].start), strides, strict=False))
        fill(file, path, view[done : done + run], start + first)
        done += run
    inner = tuple(slice(part.start, part.stop) for part in wanted[last + 1 :])
    return np.ascontiguousarray(array[(slice(None),) * (last + 1) + inner])


def fill(file: int, path: Path, view: memoryview, offset: int) -> None:
    """Fill ``view`` with the bytes of the open ``file`` from ``offset`` on; ``DataError`` for ``path`` if it ends."""
    feed = reading(file, path, offset, len(view))
    most = len(view) if feed is None else PIECE
    done = 0
    while done < len(view):
        count = os.preadv(file, [view[done : done + most]], offset + done)
        if count == 0:
            raise DataError(
                path, f"ends {len(view) - done} bytes too early", "copy it again, or remove it from the set"
            )
        if feed is not None:
            feed(view[done : done + count])
        done += count
