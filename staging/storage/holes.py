"""Leaves long runs of zeros out of what is written, so that a sparse file stays sparse."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

HOLE_BYTES = 1 << 20
"""Size in bytes of the parts of a file that are searched for zeros."""


def runs_of_data(data: memoryview, position: int = 0) -> Iterator[tuple[int, int]]:
    """Where the parts of ``data`` start and stop that must be written; the bytes between are zeros.

    Data of fewer than ``HOLE_BYTES`` are written as they are. The others are searched in parts between the multiples of
    ``HOLE_BYTES`` in the file, where they are from ``position`` on.
    """
    size = len(data)
    if size < HOLE_BYTES:
        yield 0, size
        return
    begin = 0
    for start, stop in pairwise([0, *range(HOLE_BYTES - position % HOLE_BYTES, size, HOLE_BYTES), size]):
        if not is_zeros(data[start:stop]):
            continue
        if begin < start:
            yield begin, start
        begin = stop
    if begin < size:
        yield begin, size


def is_zeros(data: memoryview) -> bool:
    """Whether all bytes are zero; if the first or the last is not, no other is looked at."""
    return not (data[0] or data[-1] or np.frombuffer(data, np.uint8).any())
