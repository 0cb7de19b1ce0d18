"""Cuts a run of entries into pieces of one byte stream, the same on all ranks, and fills pieces that are read here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from staging.planning.slices import Slices
from staging.source.sources import Reader


class Fragment(NamedTuple):
    """Bytes ``start`` to ``stop`` of an entry of ``size`` bytes."""

    entry: int
    start: int
    stop: int
    size: int
    of: tuple[int, int] | None = None
    """If the entry is cut: where the fragment's slice begins and ends; otherwise the slice is the whole entry."""

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

    @property
    def ends_slice(self) -> bool:
        """Whether its slice ends here."""
        return self.stop == (self.size if self.of is None else self.of[1])


@dataclass(frozen=True)
class Piece:
    """Some neighbouring fragments of a stream, read, sent and written together."""

    fragments: list[Fragment]
    bytes: int

    @property
    def ends_job(self) -> bool:
        """Whether another thread may continue: the last entry ends here, or may be written in any order."""
        last = self.fragments[-1]
        return last.of is not None or last.is_last


def parts(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Bytes ``start`` to ``stop`` of a file, divided at the multiples of ``size``.

    Holes, and blocks that have checksums, begin at multiples of powers of two as well, so that few are divided.
    """
    yield from pairwise([start, *range(start - start % size + size, stop, size), stop])


class Stream:
    """Slices, in this order, cut into pieces of at most ``piece_bytes``.

    A slice that fits into a piece is never cut, so that a piece holds whole files, or a part of one larger one.
    """

    def __init__(self, slices: Slices, piece_bytes: int) -> None:
        self.slices = slices
        self.ends = np.cumsum(slices.bytes)
        self.piece_bytes = piece_bytes
        self._is_cut = slices.is_cut

    @property
    def bytes(self) -> int:
        """Bytes of all slices."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def jobs(self) -> int:
        """How many threads may work at once: one for each whole entry, one for each piece of a cut entry."""
        first = self.slices.start[self._is_cut] // self.piece_bytes
        after = -(-self.slices.stop[self._is_cut] // self.piece_bytes)
        return len(self.slices) - len(first) + int((after - first).sum())

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order. Each entry begins in exactly one of them; empty entries have a fragment, too."""
        number, limit = 0, self.piece_bytes
        while number < len(self.slices):
            begin = int(self.ends[number - 1]) if number else 0
            if int(self.ends[number]) - begin > limit:
                yield from self._cut(number)
                number += 1
                continue
            after = int(np.searchsorted(self.ends, begin + limit, side="right"))
            yield Piece(self._all_of(number, after), int(self.ends[after - 1]) - begin)
            number = after

    def _cut(self, number: int) -> Iterator[Piece]:
        (whole,) = self._all_of(number, number + 1)
        for start, stop in parts(whole.start, whole.stop, self.piece_bytes):
            yield Piece([whole._replace(start=start, stop=stop)], stop - start)

    def _all_of(self, first: int, after: int) -> list[Fragment]:
        """The slices from number ``first`` to before ``after``, as fragments."""
        slices = self.slices
        entries, starts, stops, sizes = (
            column[first:after].tolist() for column in (slices.entry, slices.start, slices.stop, slices.size)
        )
        whole = [Fragment(*row) for row in zip(entries, starts, stops, sizes, strict=True)]
        if not self._is_cut[first:after].any():
            return whole
        cut = self._is_cut[first:after].tolist()
        return [
            fragment._replace(of=(fragment.start, fragment.stop)) if is_cut else fragment
            for fragment, is_cut in zip(whole, cut, strict=True)
        ]


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
