"""Sparse files stay sparse, and every byte of them is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.options import StageOptions
from staging.report import StagingReport
from staging.stage import stage
from staging.storage import holes
from staging.storage.holes import runs_of_data
from tests.staging.processes import contents
from tests.staging.thread_world import run_ranks

MIB = 1 << 20
BLOCKS = st.lists(st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)), max_size=12)


@given(st.integers(0, 40), BLOCKS, st.binary(max_size=15))
def test_what_is_not_written_is_zeros(position: int, blocks: list[bytes], tail: bytes) -> None:
    """Holes are found at multiples of their size in the file, wherever a write of it begins."""
    first = -position % 16
    data = b"x" * first + b"".join(blocks) + tail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holes, "HOLE_BYTES", 16)
        runs = list(runs_of_data(memoryview(data), position))
    written = bytearray(len(data))
    for start, stop in runs:
        assert start < stop or not data
        written[start:stop] = data[start:stop]
    assert bytes(written) == data
    if len(data) >= 16:
        holes_left = [at for at in range(first, len(data) - 15, 16) if data[at : at + 16] == bytes(16)]
        assert not any(start <= at < stop for start, stop in runs for at in holes_left)


def sparse(path: Path, size: int, data: dict[int, bytes]) -> None:
    """A file of ``size`` bytes with ``data`` at some places and holes between."""
    with path.open("wb") as file:
        for place, part in data.items():
            file.seek(place)
            file.write(part)
        file.truncate(size)


@pytest.mark.parametrize("path", ["direct", "exchange"])
@pytest.mark.parametrize("ranks", [[1], [3]])
def test_sparse_files_stay_sparse(tmp_path: Path, ranks: list[int], path: Any) -> None:
    source = tmp_path / "source"
    source.mkdir()
    sparse(source / "large", 40 * MIB + 5, {0: b"first", 20 * MIB + 77: b"middle" * 1000, 30 * MIB: b"late"})
    sparse(source / "middle", 3 * MIB, {MIB + 9: b"alone"})
    sparse(source / "empty", 12 * MIB, {})
    sparse(source / "small", 5000, {})
    options = StageOptions(source, str(tmp_path / "{node}"), path=path, verify="reread")
    report = run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]
    out = tmp_path / "node0"
    assert contents(out) == contents(source)
    assert report.totals.bytes_landed == sum(len(data) for data in contents(source).values())
    if (source / "large").stat().st_blocks * 512 > MIB:
        pytest.skip("this filesystem keeps no holes")
    taken = {name: (out / name).stat().st_blocks * 512 for name in ("large", "middle", "empty")}
    assert taken["large"] <= 4 * MIB
    assert taken["middle"] <= 2 * MIB
    assert taken["empty"] == 0


def staged(tmp_path: Path, ranks: list[int], **settings: Any) -> StagingReport:
    """The report of staging ``source`` to ``node0``, ``node1`` and so on."""
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), **settings)
    return run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]


def on_disk(root: Path, name: str) -> int:
    """Bytes that a file takes."""
    return (root / name).stat().st_blocks * 512


@pytest.fixture
def small_holes(tmp_path: Path) -> Path:
    """A source with a file of small holes, one that is a hole, a dense one, and one that keeps its holes."""
    source = tmp_path / "source"
    source.mkdir()
    sparse(source / "small", 34 * MIB, dict.fromkeys(range(0, 34 * MIB, 900000), b"x" * 4096))
    sparse(source / "hole", 9 * MIB, {})
    sparse(source / "large", 20 * MIB, {0: b"x" * 4096})
    (source / "dense").write_bytes(np.random.default_rng(0).bytes(2 * MIB))
    if on_disk(source, "hole"):
        pytest.skip("this filesystem keeps no holes")
    return source


@pytest.mark.slow
@pytest.mark.parametrize("path", ["direct", "exchange"])
@pytest.mark.parametrize("ranks", [[1], [3], [2, 2]])
def test_growth_of_small_holes_is_said(tmp_path: Path, small_holes: Path, ranks: list[int], path: Any) -> None:
    report = staged(tmp_path, ranks, path=path)
    nodes = [tmp_path / f"node{number}" for number in range(len(ranks))]
    sparse_ones = ("small", "hole", "large")
    growth = sum(on_disk(node, name) - on_disk(small_holes, name) for node in nodes for name in sparse_ones)
    assert growth > 30 * MIB * len(ranks)
    # to the block or two that a filesystem takes for itself when the file gets to the disk
    assert report.growth_bytes == report.as_dict()["growth_bytes"] == pytest.approx(growth, abs=64 << 10)
    text = " ".join(report.table().split())
    assert f"files with holes take {report.totals.sparse_landed_bytes / 1e6:.2f} MB here and" in text
    again = staged(tmp_path, ranks, path=path)
    assert again.growth_bytes == 0
    assert "files with holes" not in again.table()


def test_growth_by_small_pieces_is_said(tmp_path: Path, small_holes: Path) -> None:
    (small_holes / "small").unlink()
    report = staged(tmp_path, [1], piece_bytes=1_000_000, share_files=False)
    growth = sum(on_disk(tmp_path / "node0", name) - on_disk(small_holes, name) for name in ("hole", "large"))
    assert growth > 5 * MIB
    assert report.growth_bytes == pytest.approx(growth, abs=64 << 10)
    assert "files with holes take" in report.table()


def test_holes_that_are_kept_are_no_growth(tmp_path: Path, small_holes: Path) -> None:
    (small_holes / "small").unlink()
    report = staged(tmp_path, [1])
    assert report.totals.sparse_landed_bytes == on_disk(tmp_path / "node0", "large")
    assert report.growth_bytes < MIB
    assert "files with holes" not in report.table()


def test_what_a_transform_makes_is_no_growth(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rows = np.zeros((8, 1 << 20), np.uint8)
    with (source / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
        file.truncate(file.tell() + rows.nbytes)
    sparse(source / "b.bin", 8 * MIB, {})
    options: dict[str, Any] = {"transform": "npy-rows:first=0,stop=4,of=8", "piece_bytes": 1000, "plain": ("auto",)}
    report = staged(tmp_path, [1], **options)
    assert on_disk(tmp_path / "node0", "a.npy") > 3 * MIB
    assert report.totals.sparse_landed_bytes == on_disk(tmp_path / "node0", "b.bin")
