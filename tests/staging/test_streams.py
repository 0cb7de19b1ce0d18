"""A stream's pieces hold every byte once, in order, and never cut a file that fits into one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from staging.moving.streams import Stream
from staging.planning.slices import Slices


def stream(sizes: list[int], piece_bytes: int, entries: NDArray[np.int64] | None = None) -> Stream:
    """All files of these sizes, or those with the numbers ``entries``."""
    return Stream(Slices.whole(np.array(sizes, np.int64), entries), piece_bytes)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 20), st.randoms())
def test_every_byte_once_and_in_order(sizes: list[int], piece_bytes: int, random: object) -> None:
    entries = np.random.default_rng(len(sizes)).permutation(len(sizes)).astype(np.int64)
    pieces = list(stream(sizes, piece_bytes, entries).pieces())
    fragments = [fragment for piece in pieces for fragment in piece.fragments]
    assert [fragment.entry for fragment in fragments if fragment.is_first] == entries.tolist()
    assert [fragment.entry for fragment in fragments if fragment.is_last] == entries.tolist()
    for entry, size in enumerate(sizes):
        parts = [(part.start, part.stop) for part in fragments if part.entry == entry]
        assert parts[0][0] == 0
        assert parts[-1][1] == size
        assert all(before[1] == after[0] for before, after in pairwise(parts))
        assert len(parts) == (1 if size <= piece_bytes else -(-size // piece_bytes))
    for piece in pieces:
        assert piece.bytes == sum(part.stop - part.start for part in piece.fragments) <= piece_bytes


def test_neighbours_share_a_piece_as_far_as_it_holds_them() -> None:
    pieces = list(stream([3, 4, 3, 1, 25, 0, 2], 10).pieces())
    assert [[part.entry for part in piece.fragments] for piece in pieces] == [[0, 1, 2], [3], [4], [4], [4], [5, 6]]


def test_no_entries_no_pieces() -> None:
    assert list(stream([], 10).pieces()) == []
    assert [len(piece.fragments) for piece in stream([0, 0], 10).pieces()] == [2]


@given(st.integers(8, 60), st.integers(1, 20), st.data())
def test_cut_slices_are_divided_at_multiples_of_a_piece_in_the_file(
    size: int, piece_bytes: int, data: st.DataObject
) -> None:
    """Wherever the slice begins, so that holes and blocks of checksums are divided as rarely as in whole files."""
    start, stop = sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2, unique=True)))
    columns = [np.array([number], np.int64) for number in (0, start, stop, size)]
    own = Stream(Slices(*columns), piece_bytes)
    found = [(part.start, part.stop) for piece in own.pieces() for part in piece.fragments]
    assert (found[0][0], found[-1][1]) == (start, stop)
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert all(after - before <= piece_bytes for before, after in found)
    if stop - start > piece_bytes:
        assert all(before % piece_bytes == 0 for before, _ in found[1:])
        if (start, stop) != (0, size):
            assert own.jobs == len(found)
