"""Buffers of a staging are freed when it ends, and not when the garbage collector happens to run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from staging.errors import DataError
from staging.moving import direct, exchange
from staging.options import StageOptions
from staging.stage import stage
from tests.staging.thread_world import run_ranks

PIECE = 123_456


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Reference cycles stay."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def buffers() -> int:
    """Buffers that are in memory."""
    # Not isinstance: some objects look at what they stand for when they are asked.
    views = [each for each in gc.get_objects() if type(each) is memoryview]
    return sum(each.nbytes in (PIECE, PIECE + exchange.TRAILER) for each in views)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "ranks"), [("direct", [1]), ("exchange", [1]), ("exchange", [1, 1])])
def test_none_is_left_of_a_staging(
    path: str, ranks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "LARGE_BYTES", 1)  # so that one thread reads and another one writes
    seen = []
    fill = direct.fill

    def filled(*words: object) -> memoryview:
        seen.append(buffers())
        return fill(*words)  # type: ignore[arg-type]

    for module in (direct, exchange):
        monkeypatch.setattr(module, "fill", filled)
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.bin").write_bytes(bytes(3 * PIECE))
    options = StageOptions(source, str(tmp_path / "{node}"), path=path, piece_bytes=PIECE)  # type: ignore[arg-type]
    run_ranks(ranks, lambda world: stage(options, world, quiet=True))
    assert max(seen) > 1
    assert buffers() == 0


def test_few_are_left_of_one_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error knows the frames that it passed, and so what was in hand there."""

    def damaged(*words: object) -> None:
        raise DataError("0.bin", "is damaged", "copy it again")

    monkeypatch.setattr(exchange.Exchange, "verify", damaged)
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.bin").write_bytes(bytes(20 * PIECE))
    options = StageOptions(source, str(tmp_path / "{node}"), path="exchange", piece_bytes=PIECE, queue_pieces=30)
    with pytest.raises(DataError, match="is damaged"):
        run_ranks([1, 1], lambda world: stage(options, world, quiet=True))
    assert buffers() < 20
