"""The reading end of a pipeline: fills pieces, in order, and sends them on."""

from __future__ import annotations

from staging.moving.streams import Piece
from staging.source.sources import Reader


def fill(reader: Reader, piece: Piece, buffer: memoryview) -> memoryview:
    """Read the bytes of ``piece`` into the front of ``buffer``; returns that part of it."""
    position = 0
    for fragment in piece.fragments:
        length = fragment.stop - fragment.start
        if length:
            reader.read_into(fragment.entry, fragment.start, buffer[position : position + length])
        position += length
        if fragment.ends_slice:
            reader.finish(fragment.entry, is_last=fragment.is_last)
    return buffer[:position]
