"""Destinations that keep other times than they are given: files are staging's own all the same."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging.ledger.clean import clean
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.reshuffle import reshuffle
from staging.stage import stage
from tests.staging.crashes.scenarios import small_cuts
from tests.staging.processes import contents
from tests.staging.thread_world import run_ranks

SECOND = 10**9
TIME_NS = 1_500_000_000_123_456_789
SIZES = [0, 700, 40_000, 9_000, 31_234, 60]
PIECE = 5_000


def rounds_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole seconds are kept, as on ext3 or HFS+."""
    real = os.utime

    def utime(path: Any, *words: Any, ns: tuple[int, int], **more: Any) -> None:
        real(path, *words, ns=(ns[0] - ns[0] % SECOND, ns[1] - ns[1] % SECOND), **more)

    monkeypatch.setattr(os, "utime", utime)


def rounds_as_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the time is that which was given, as where a server hears of it only then."""
    close, utime = os.close, os.utime

    def close_and_round(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        close(descriptor)
        if path.endswith(".part") and os.path.exists(path):  # noqa: PTH110
            utime(path, ns=(TIME_NS, TIME_NS - TIME_NS % SECOND))

    monkeypatch.setattr(os, "close", close_and_round)


@pytest.fixture(params=[rounds_as_it_is_given, rounds_as_it_is_closed], autouse=True)
def rounding(request: pytest.FixtureRequest, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination of one of the kinds."""
    round_times: Callable[[pytest.MonkeyPatch], None] = request.param
    round_times(monkeypatch)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files of one piece and of several, and an archive."""
    random = np.random.default_rng(5)
    root = tmp_path / "source"
    (root / "train").mkdir(parents=True)
    for number, size in enumerate(SIZES):
        (root / f"train/{number}").write_bytes(random.bytes(size))
    with tarfile.open(root / "train/more.tar", "w") as archive:
        for name, size in (("small", 30), ("large", 12_000)):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = size, TIME_NS // SECOND
            archive.addfile(member, io.BytesIO(random.bytes(size)))
    for path in root.rglob("*"):
        os.utime(path, ns=(TIME_NS, TIME_NS))
    return root


def moved(options: StageOptions, ranks: list[int]) -> tuple[int, int]:
    """How many files a staging brings, and how many it finds as they landed."""
    with small_cuts():
        totals = run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0].totals
    return totals.files_landed, totals.files_present


@pytest.mark.parametrize(
    ("ranks", "more"),
    [([1], {}), ([2], {}), ([1, 1], {"path": "exchange"}), ([1], {"transform": "untar", "plain": ("[0-9]",)})],
)
def test_a_second_staging_moves_nothing_and_clean_takes_all(
    ranks: list[int], more: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), piece_bytes=PIECE, **more)
    files = len(SIZES) + (2 if "transform" in more else 1)
    assert moved(options, ranks)[0] == files * len(ranks)
    landed = {path.stat().st_mtime_ns for path in (tmp_path / "node0/train").iterdir()}
    assert landed == {TIME_NS - TIME_NS % SECOND}
    assert all(file.landed_ns == TIME_NS - TIME_NS % SECOND for file in load_records(tmp_path / "node0"))
    assert moved(options, ranks)[0] == 0
    for node in range(len(ranks)):
        assert clean(tmp_path / f"node{node}").left == []
        assert list((tmp_path / f"node{node}").iterdir()) == []


def test_shards_change_their_homes_and_nothing_is_left_behind(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), "shard", piece_bytes=PIECE, seed=1)
    moved(options, [1, 1])
    before = [set(contents(tmp_path / f"node{node}")) for node in range(2)]
    went = [run_ranks([1, 1], partial(reshuffle, options, shuffle))[0].files for shuffle in (1, 2, 3)]
    assert sum(went) > 0
    found = [contents(tmp_path / f"node{node}") for node in range(2)]
    assert found[0] | found[1] == contents(source)
    assert not set(found[0]) & set(found[1])
    assert [set(part) for part in found] != before
    assert all(clean(tmp_path / f"node{node}").left == [] for node in range(2))
