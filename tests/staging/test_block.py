"""Blocks of arrays in files: those of NumPy, read without most of what is around them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from staging.errors import DataError
from staging.formats import block
from staging.formats.npy import read_array, write_array

COUNTS = np.arange(6 * 40 * 50 * 4, dtype=np.int16).reshape(6, 40, 50, 4)
PAGE = 4096


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that each call of the reader fetches of a block."""
    counts: list[int] = []
    preadv = os.preadv

    def counted(*arguments: Any) -> int:
        counts.append(preadv(*arguments))
        return counts[-1]

    monkeypatch.setattr(os, "preadv", counted)
    return counts


@st.composite
def arrays_and_blocks(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    cuts = [sorted((draw(st.integers(0, size)), draw(st.integers(0, size)))) for size in shape]
    slices = tuple(draw(st.sampled_from((slice(None), slice(*cut)))) for cut in cuts)
    return shape, slices[: draw(st.integers(0, len(shape)))]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=arrays_and_blocks(),
    smallest_gap=st.sampled_from((1, 8, 32, PAGE)),
    dtype=st.sampled_from(("<i2", "<f4", "|u1")),
)
def test_any_block_is_that_of_numpy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[tuple[int, ...], tuple[slice, ...]],
    smallest_gap: int,
    dtype: str,
) -> None:
    shape, part = case
    monkeypatch.setattr(block, "SMALLEST_GAP", smallest_gap)
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    write_array(tmp_path / "a.npy", whole)
    found = read_array(tmp_path / "a.npy", shape=shape, dtype=dtype, selection=part)
    assert np.array_equal(found, whole[part])
    assert found.flags.c_contiguous
    assert found.flags.writeable


@pytest.mark.parametrize(
    ("part", "calls", "read"),
    [
        ((slice(2, 4),), 1, 2 * 40 * 50 * 8),
        ((slice(2, 4), slice(13, 27)), 2, 2 * 14 * 50 * 8),
        ((slice(None), slice(0, 20)), 6, 6 * 20 * 50 * 8),
        # 25 of 50 places leave gaps of 200 bytes, less than a page
        ((slice(2, 4), slice(0, 20), slice(0, 25)), 2, 2 * 20 * 50 * 8),
        ((), 1, 6 * 40 * 50 * 8),
        ((slice(3, 3),), 0, 0),
    ],
)
def test_runs_of_bytes_are_left_out_where_they_fill_a_page(
    tmp_path: Path, bytes_read: list[int], part: tuple[slice, ...], calls: int, read: int
) -> None:
    write_array(tmp_path / "a.npy", COUNTS)
    found = read_array(tmp_path / "a.npy", shape=COUNTS.shape, dtype=np.int16, selection=part)
    assert np.array_equal(found, COUNTS[part])
    assert (len(bytes_read), sum(bytes_read)) == (calls, read)


def test_reads_that_come_in_pieces_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, offset: preadv(file, [buffers[0][:1000]], offset))
    write_array(tmp_path / "a.npy", COUNTS)
    found = read_array(tmp_path / "a.npy", shape=COUNTS.shape, dtype=np.int16, selection=(slice(1, 3),))
    assert np.array_equal(found, COUNTS[1:3])


@pytest.mark.parametrize("part", [(slice(0, 1),), (slice(5, 6), slice(39, 40))])
def test_a_file_of_the_wrong_size_is_told_whichever_part_is_read(tmp_path: Path, part: tuple[slice, ...]) -> None:
    path = tmp_path / "a.npy"
    write_array(path, COUNTS)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="holds 95999 bytes of data where its header says 96000; copy it again"):
        read_array(path, shape=COUNTS.shape, dtype=np.int16, selection=part)


def test_a_file_that_ends_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(bytes(100))
    with path.open("rb") as file, pytest.raises(DataError, match="raw: ends 30 bytes too early; copy it again"):
        block.read_block(file.fileno(), path, 10, (4, 30), np.dtype(np.uint8), (slice(2, 4),))
