"""A run of entries as one stream of bytes, cut into pieces; the same on the rank that reads and on those that write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from staging.source.listing import Listing


class Fragment(NamedTuple):
    """Bytes ``start`` to ``stop`` of an entry, which has ``size``."""

    entry: int
    start: int
    stop: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether the entry begins here."""
        return self.start == 0

    @property
    def is_last(self) -> bool:
        """Whether the entry ends here."""
        return self.stop == self.size

    @property
    def is_whole(self) -> bool:
        """Whether this is the entire entry."""
        return self.start == 0 and self.stop == self.size


@dataclass(frozen=True)
class Piece:
    """Some neighbouring fragments of a stream, read, sent and written together."""

    fragments: list[Fragment]
    bytes: int


class Stream:
    """The entries with numbers ``entries`` of a listing, in this order, cut into pieces of at most ``piece_bytes``.

    An entry that fits into a piece is never cut, so that a piece holds whole files, or a part of one larger one.
    """

    def __init__(self, listing: Listing, entries: NDArray[np.int64], piece_bytes: int) -> None:
        self.entries = entries
        self.ends = np.cumsum(listing.sizes[entries])
        self.piece_bytes = piece_bytes

    @property
    def bytes(self) -> int:
        """Bytes of all entries."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order. Each entry begins in exactly one of them, and empty ones have a fragment, too."""
        number, limit = 0, self.piece_bytes
        while number < len(self.entries):
            begin = int(self.ends[number - 1]) if number else 0
            size = int(self.ends[number]) - begin
            if size > limit:
                for start in range(0, size, limit):
                    stop = min(start + limit, size)
                    yield Piece([Fragment(int(self.entries[number]), start, stop, size)], stop - start)
                number += 1
                continue
            after = int(np.searchsorted(self.ends, begin + limit, side="right"))
            yield self._whole(number, after, begin)
            number = after

    def _whole(self, number: int, after: int, begin: int) -> Piece:
        sizes = np.diff(self.ends[number:after], prepend=begin).tolist()
        fragments = [
            Fragment(entry, 0, size, size)
            for entry, size in zip(self.entries[number:after].tolist(), sizes, strict=True)
        ]
        return Piece(fragments, sum(sizes))
