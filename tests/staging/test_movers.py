"""Both paths end with the content of a plain copy, for any files, nodes, ranks, pieces and what is there already."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.counters import Counters
from staging.errors import DataError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.sinks import Landed
from staging.moving.direct import is_for_pairs, move_directly
from staging.moving.exchange import TRAILER, Lane, move_by_exchange
from staging.moving.streams import Piece, Stream, fill
from staging.moving.writing import PieceWriter
from staging.planning.plan import EVERY_NODE, Plan
from staging.planning.slices import Slices
from staging.source.listing import UNKNOWN, Listing, Names
from staging.source.sources import Reader, TreeSource
from staging.threads.channel import Failure
from tests.staging.opened import opened
from tests.staging.thread_world import ThreadWorld, run_ranks


class MemorySink:
    """Keeps an entry in memory and then writes it."""

    def __init__(self, destination: Path, name: str, size: int, mtime_ns: int) -> None:
        self.path, self.name, self.mtime_ns = destination / name, name, mtime_ns
        self.data = bytearray()

    def write(self, data: memoryview) -> None:
        self.data += data

    def close(self) -> list[Landed]:
        assert not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.data)
        return [Landed(self.name, len(self.data), crc32c(self.data), self.name, self.mtime_ns)]

    def abandon(self) -> None:
        self.data.clear()


class Maker:
    """Makes memory sinks."""

    def __call__(self, destination: Path, name: str, size: int, mtime_ns: int) -> MemorySink:
        return MemorySink(destination, name, size, mtime_ns)

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        return [(name, size)]


@dataclass
class Case:
    """A source on disk, with its listing."""

    root: Path
    contents: dict[str, bytes]
    listing: Listing


def make(root: Path, sizes: list[int]) -> Case:
    """Files of random bytes."""
    random = np.random.default_rng(sum(sizes))
    contents = {f"train/{i:03d}": random.bytes(size) for i, size in enumerate(sizes)}
    (root / "train").mkdir(parents=True)
    for name, data in contents.items():
        (root / name).write_bytes(data)
    times = [(root / name).stat().st_mtime_ns for name in contents]
    checksums = [crc32c(data) for data in contents.values()]
    names = Names.of(contents)
    return Case(root, contents, Listing(names, np.array(sizes, np.int64), np.array(times), np.array(checksums)))


def read_back(root: Path) -> dict[str, bytes]:
    """All files below ``root``."""
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(1, 100), st.integers(1, 3), st.booleans())
@settings(deadline=None, max_examples=40)
def test_directly(sizes: list[int], piece_bytes: int, threads: int, in_pairs: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("staging.moving.direct.is_for_pairs", lambda stream, threads: in_pairs)
        patch.setattr("staging.moving.direct.are_small", lambda size, files: False)
        patch.setattr("staging.moving.direct.BLOCK_BYTES", 7)
        case = make(Path(folder) / "source", sizes)
        out = Path(folder) / "out"
        stream = Stream(Slices.whole(case.listing.sizes), piece_bytes)
        landed: list[Landed] = []
        counters = move_directly(
            TreeSource(case.root, case.listing), stream, lambda: writer(case, out, landed), threads, 2
        )
        assert read_back(out) == case.contents
        assert (counters.bytes_read, counters.bytes_landed) == (sum(sizes), sum(sizes))
        assert (counters.files_read, counters.files_landed) == (len(sizes), len(sizes))
        assert sorted(file.name for file in landed) == sorted(case.contents)


@pytest.mark.parametrize("size", [100, 200_000])
@pytest.mark.parametrize("transforms", [False, True])
def test_only_small_files_as_they_are_keep_to_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, transforms: bool
) -> None:
    asked: list[bool] = []

    def note(work: Callable[[], None], threads: int, failure: Failure, *, at_once: bool) -> None:
        asked.append(at_once)
        work()

    monkeypatch.setattr("staging.moving.direct.run_in_threads", note)
    case = make(tmp_path / "source", [size, size])
    stream = Stream(Slices.whole(case.listing.sizes), 1 << 20)
    source = TreeSource(case.root, case.listing)
    move_directly(source, stream, lambda: writer(case, tmp_path / "out", []), 4, 2, transforms=transforms)
    assert read_back(tmp_path / "out") == case.contents
    assert asked == [transforms or size > 100_000]


@pytest.mark.parametrize(
    ("sizes", "threads", "expected"),
    [([64 << 20], 4, True), ([64 << 20], 1, False), ([64 << 20] * 4, 4, False), ([1 << 20], 4, False), ([], 4, False)],
)
def test_a_thread_more_reads_for_few_large_files(sizes: list[int], threads: int, expected: bool) -> None:
    zeros = np.zeros(len(sizes), np.int64)
    listing = Listing(Names.of(map(str, range(len(sizes)))), np.array(sizes, np.int64), zeros, zeros)
    assert is_for_pairs(Stream(Slices.whole(listing.sizes), 8 << 20), threads) is expected


def writer(case: Case, out: Path, landed: list[Landed], wanted: Any = None) -> PieceWriter:
    """A writer that wants all, or what it is told."""
    wanted = np.ones(len(case.listing), bool) if wanted is None else wanted
    return PieceWriter(case.listing, wanted, Maker(), opened(out), landed.extend)


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=60)
def test_by_exchange(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 4))
    ranks = data.draw(st.lists(st.integers(1, 2), min_size=nodes, max_size=nodes))
    sizes = data.draw(st.lists(st.integers(0, 200), max_size=14))
    replicate = data.draw(st.booleans())
    lanes, number = min(ranks), len(sizes)

    def column(low: int, high: int) -> Any:
        return np.array(data.draw(st.lists(st.integers(low, high), min_size=number, max_size=number)), np.int32)

    home = np.full(number, EVERY_NODE, np.int32) if replicate else column(0, nodes - 1)
    reading, lane = column(0, nodes - 1), column(0, lanes - 1)
    wanted = [column(0, 4) > 0 for _ in range(nodes)]
    wanted = [want & ((home == EVERY_NODE) | (home == node)) for node, want in enumerate(wanted)]
    moving = np.logical_or.reduce(wanted) if number else np.zeros(0, bool)
    piece_bytes, queue_pieces, writers = (data.draw(st.integers(1, top)) for top in (60, 3, 3))
    with tempfile.TemporaryDirectory() as folder:
        case = make(Path(folder) / "source", sizes)
        plan = Plan(case.listing, nodes, lanes, home, Slices.whole(case.listing.sizes), reading, lane)

        def work(world: ThreadWorld) -> Counters | None:
            place = world.place
            if place.local_rank >= lanes:
                return None
            partners = [sum(ranks[:node]) + place.local_rank for node in range(nodes)]
            own = np.flatnonzero(moving & (lane == place.local_rank))
            part = Lane(world, plan, partners, own, piece_bytes)
            out = Path(folder) / f"node{place.node}"
            landed: list[Landed] = []
            return move_by_exchange(
                part, TreeSource(case.root, case.listing),
                lambda: writer(case, out, landed, wanted[place.node]), writers, queue_pieces, checked=True,
            )  # fmt: skip

        counted = [part for part in run_ranks(ranks, work) if part is not None]
        names = list(case.contents)
        for node in range(nodes):
            expected = {names[entry]: case.contents[names[entry]] for entry in np.flatnonzero(wanted[node])}
            assert read_back(Path(folder) / f"node{node}") == expected
        moved = int(case.listing.sizes[moving].sum())
        assert sum(part.bytes_read for part in counted) == moved
        assert sum(part.bytes_sent for part in counted) == sum(part.bytes_received for part in counted)
        if replicate:
            payload = sum(part.bytes_received for part in counted) - moved * (nodes - 1)
            assert 0 <= payload <= TRAILER * (nodes - 1) * int(np.count_nonzero(moving) + moved // piece_bytes)


def test_an_entry_that_differs_from_its_index_is_named(tmp_path: Path) -> None:
    case = make(tmp_path / "source", [50, 60])
    case.listing.checksums[1] ^= 1
    stream = Stream(Slices.whole(case.listing.sizes), 20)
    with pytest.raises(DataError, match=r"train/001: has CRC32C .* where the index says"):
        move_directly(TreeSource(case.root, case.listing), stream, lambda: writer(case, tmp_path / "out", []), 2, 2)
    case.listing.checksums[:] = UNKNOWN
    move_directly(TreeSource(case.root, case.listing), stream, lambda: writer(case, tmp_path / "more", []), 2, 2)
    assert read_back(tmp_path / "more") == case.contents


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "vanished from the source"),
        (lambda path: path.write_bytes(b"short"), "changed while it was staged: it ends after 5 of 60 bytes"),
        (lambda path: path.write_bytes(bytes(61)), "it has 61 bytes where 60 were listed"),
        (lambda path: os.utime(path, ns=(0, 0)), "it was written to since it was listed"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read (Is a directory)"),
    ],
)
def test_a_source_that_changes_is_named(tmp_path: Path, spoil: Any, words: str) -> None:
    case = make(tmp_path / "source", [50, 60, 70])
    spoil(case.root / "train/001")
    stream = Stream(Slices.whole(case.listing.sizes), 1000)
    with pytest.raises(DataError) as caught:
        move_directly(TreeSource(case.root, case.listing), stream, lambda: writer(case, tmp_path / "out", []), 1, 2)
    assert words in str(caught.value)
    assert str(case.root / "train/001") in str(caught.value)


def test_an_error_of_one_thread_leaves_no_unfinished_file_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make(tmp_path / "source", [50, 60])
    midway, failed = threading.Event(), threading.Event()
    fail = Failure.fail

    def fails(failure: Failure, error: BaseException) -> None:
        fail(failure, error)
        failed.set()

    def filled(reader: Reader, piece: Piece, buffer: memoryview) -> memoryview:
        fragment = piece.fragments[0]
        if fragment.entry == 0:
            midway.wait(60)
            raise DataError("a", "is not as it was")
        if fragment.start > 0:
            midway.set()
            failed.wait(60)
        return fill(reader, piece, buffer)

    monkeypatch.setattr(Failure, "fail", fails)
    monkeypatch.setattr("staging.moving.direct.fill", filled)
    monkeypatch.setattr("staging.moving.direct.are_small", lambda size, files: False)
    monkeypatch.setattr("staging.moving.direct.BLOCK_BYTES", 7)
    out = opened(tmp_path / "out")

    def make_writer() -> PieceWriter:
        return PieceWriter(case.listing, np.ones(2, np.bool_), FileSinkMaker(), out, lambda landed: None)

    with pytest.raises(DataError, match="is not as it was"):
        move_directly(
            TreeSource(case.root, case.listing), Stream(Slices.whole(case.listing.sizes), 10), make_writer, 2, 2
        )
    assert read_back(tmp_path / "out") == {}


@pytest.mark.parametrize(("replaced", "times"), [(False, 1), (True, 1), (False, 9)])
def test_a_handle_that_is_stale_after_the_last_read_is_opened_again(
    replaced: bool, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a client of NFS has put another file in its place: that escaped without the name of a file."""
    case = make(tmp_path / "source", [50])
    reader = TreeSource(case.root, case.listing, retries=1).reader()
    reader.read_into(0, 0, memoryview(bytearray(50)))
    if replaced:
        (case.root / "new").write_bytes(b"another")
        (case.root / "new").rename(case.root / case.listing.names[0])
    real, failures = os.fstat, [errno.ESTALE] * times

    def stale(descriptor: int) -> os.stat_result:
        if failures:
            raise OSError(failures.pop(), os.strerror(errno.ESTALE))
        return real(descriptor)

    monkeypatch.setattr("staging.source.sources.os.fstat", stale)
    if replaced or times > 1:
        problem = (
            "changed while it was staged: it has 7 bytes" if replaced else "cannot be read \\(Stale file handle\\)"
        )
        with pytest.raises(DataError, match=f"{case.listing.names[0]}: {problem}"):
            reader.finish(0)
        failures.clear()
    else:
        reader.finish(0)
        assert (reader.counters.files_read, reader.counters.retries) == (1, 1)


def test_an_error_that_passes_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make(tmp_path / "source", [50, 60])
    real, failures = os.preadv, [5, 110]

    def flaky(*words: Any) -> int:
        if failures:
            raise OSError(failures.pop(), "later")
        return real(*words)

    monkeypatch.setattr(os, "preadv", flaky)
    stream = Stream(Slices.whole(case.listing.sizes), 1000)
    counters = move_directly(
        TreeSource(case.root, case.listing, retries=2), stream, lambda: writer(case, tmp_path / "out", []), 1, 2
    )
    assert counters.retries == 2
    assert read_back(tmp_path / "out") == case.contents
    failures += [5] * 9
    with pytest.raises(DataError, match=r"cannot be read \(later\)"):
        move_directly(
            TreeSource(case.root, case.listing, retries=1), stream, lambda: writer(case, tmp_path / "two", []), 1, 2
        )
    shutil.rmtree(tmp_path / "out")
