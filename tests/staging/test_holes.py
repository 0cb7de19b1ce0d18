"""Sparse files stay sparse, and every byte of them is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.options import StageOptions
from staging.stage import stage
from staging.storage import holes
from staging.storage.holes import runs_of_data
from tests.staging.processes import contents
from tests.staging.thread_world import run_ranks

MIB = 1 << 20
BLOCKS = st.lists(st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)), max_size=12)


@given(BLOCKS, st.binary(max_size=15))
def test_what_is_not_written_is_zeros(blocks: list[bytes], tail: bytes) -> None:
    data = b"".join(blocks) + tail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holes, "HOLE_BYTES", 16)
        runs = list(runs_of_data(memoryview(data)))
    written = bytearray(len(data))
    for start, stop in runs:
        assert start < stop or not data
        written[start:stop] = data[start:stop]
    assert bytes(written) == data
    if len(data) >= 16:
        assert not any(data[at : at + 16] == bytes(16) for start, stop in runs for at in range(start, stop, 16))


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
