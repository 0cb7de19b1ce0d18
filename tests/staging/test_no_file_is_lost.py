"""Every file that is planned lands, whatever neighbours it has in a piece; and a loss would be noticed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.errors import DataError
from staging.moving import direct
from staging.moving.streams import Piece, Stream
from staging.options import StageOptions
from staging.planning.slices import Slices, cut
from tests.staging.test_stage import contents, stage_all

MIB = 1 << 20


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 90), st.integers(1, 20))
def test_blocks_hold_every_byte_of_their_pieces_once(
    sizes: list[int], ranks: int, piece_bytes: int, block_bytes: int
) -> None:
    """Also of a piece with the rest of a cut file and whole files behind it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("staging.planning.slices.CUT_BYTES", 8)
        patch.setattr("staging.planning.slices.LEAST_ALIGN_BYTES", 1)
        patch.setattr(direct, "BLOCK_BYTES", block_bytes)
        whole = Slices.whole(np.array(sizes, np.int64))
        one_group = np.zeros(len(sizes), np.int64)
        slices, _ = cut(whole, ranks, one_group, np.ones(len(sizes), np.bool_))
        blocks = [block for piece in Stream(slices, piece_bytes).pieces() for block in direct.blocks(piece)]
    fragments = [fragment for block in blocks for fragment in block.fragments]
    for entry, size in enumerate(sizes):
        parts = sorted((part.start, part.stop) for part in fragments if part.entry == entry)
        assert (parts[0][0], parts[-1][1]) == (0, size)
        assert all(before[1] == after[0] for before, after in pairwise(parts))
    assert sum(fragment.ends_slice for fragment in fragments) == len(slices)
    for block in blocks:
        assert block.bytes == sum(part.stop - part.start for part in block.fragments) <= piece_bytes


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file that two ranks share, and one that fits into a piece with the second one's part of it."""
    random, folder = np.random.default_rng(0), tmp_path / "source"
    folder.mkdir()
    for name, size in (("a", 10 * MIB), ("b", 4 * MIB), ("c", 5)):
        (folder / name).write_bytes(random.bytes(size))
    return folder


@pytest.mark.parametrize("ranks", [[2], [3], [2, 2], [3, 1]])
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_a_file_behind_a_part_of_another_lands(source: Path, tmp_path: Path, path: Any, ranks: list[int]) -> None:
    """In pieces of the default size."""
    stage_all(ranks, StageOptions(source, str(tmp_path / "{node}"), path=path))
    for node in range(len(ranks)):
        assert contents(tmp_path / f"node{node}") == contents(source)


def test_a_staging_that_would_lose_a_file_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = direct.blocks

    def first_alone(piece: Piece) -> Any:
        return whole(Piece(piece.fragments[:1], piece.fragments[0].stop - piece.fragments[0].start))

    monkeypatch.setattr(direct, "blocks", first_alone)
    with pytest.raises(DataError, match=r"received \d+ parts of files where a rank should write \d+"):
        stage_all([1], StageOptions(source, str(tmp_path / "there")))
