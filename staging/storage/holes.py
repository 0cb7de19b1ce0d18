"""Leaves long runs of zeros out of what is written, so that a sparse file stays sparse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

HOLE_BYTES = 1 << 20
"""Size in bytes of the parts that are searched for zeros."""


def runs_of_data(data: memoryview) -> Iterator[tuple[int, int]]:
    """Where the parts of ``data`` start and stop that must be written; the bytes between are zeros.

    Data of fewer than ``HOLE_BYTES`` are written as they are. A part that begins or ends with a non-zero byte costs no
    more than a look at these two bytes.
    """
    size = len(data)
    if size < HOLE_BYTES:
        yield 0, size
        return
    begin = 0
    for start in range(0, size, HOLE_BYTES):
        stop = min(start + HOLE_BYTES, size)
        if data[start] or data[stop - 1] or np.frombuffer(data[start:stop], np.uint8).any():
            continue
        if begin < start:
            yield begin, start
        begin = stop
    if begin < size:
        yield begin, size
