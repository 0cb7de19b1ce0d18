"""Files that several ranks write together: whole, checked, named once all have written, and gone where one fails."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pickle
import random as random_module
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from staging.checksums import BLOCK_BYTES, checksums
from staging.errors import DataError, InputError
from staging.landing.settle_shared import settle_shared
from staging.landing.shared_files import SharedFiles, Written
from staging.landing.sinks import Landed
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.source.index import write_index
from staging.source.listing import Listing, Names
from staging.source.make_index import make_index
from staging.stage import stage
from staging.storage.destination_folder import DestinationFolder
from tests.staging.processes import PLAIN, contents, run, unfinished
from tests.staging.spoiled import flip
from tests.staging.thread_world import ThreadWorld, run_ranks

SIZES = [50_000, 3, 0, 31_234, 700, 9_000]


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_ranges_grow_together_in_any_order(blocks: list[bytes], random: random_module.Random) -> None:
    starts = np.cumsum([0, *(len(block) for block in blocks)]).tolist()
    written, order = Written(), list(range(len(blocks)))
    random.shuffle(order)
    for number in order:
        written.add(starts[number], starts[number + 1], crc32c(blocks[number]))
    assert written.ranges == {0: (starts[-1], crc32c(b"".join(blocks)))}


def shared(folder: DestinationFolder, checksum: int = -1) -> SharedFiles:
    """One rank's part in ``train/big``, of ten bytes."""
    listing = Listing(Names.of(["train/big"]), np.array([10]), np.array([5]), np.array([checksum]))
    return SharedFiles(folder, listing, "0123abcd", checksum=True)


def test_two_ranks_write_one_file(tmp_path: Path) -> None:
    with DestinationFolder(tmp_path) as folder:
        one, other = shared(folder), shared(folder)
        other.write(0, 6, memoryview(b"6789"))
        one.write(0, 0, memoryview(b"012345"))
        assert (
            contents(tmp_path).keys() == set(unfinished(tmp_path)) - {str(tmp_path)} or len(unfinished(tmp_path)) == 1
        )
        one.close()
        other.close()
        landed = one.settle(0, [one.written[0].part(), other.written[0].part()])
    assert contents(tmp_path) == {"train/big": b"0123456789"}
    assert (landed.size, landed.checksum, landed.mtime_ns) == (10, crc32c(b"0123456789"), 5)
    assert (tmp_path / "train/big").stat().st_mtime_ns == 5


@pytest.mark.parametrize("blocks", [1, 1024])
def test_a_rank_receives_little_about_its_node_and_nothing_about_others(
    blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rank of a node: 16 bytes for each block that another rank of it has written; others: nothing."""
    received = dict[tuple[int, int], int]()
    gathered = [0] * 4
    send_receive, all_gather = ThreadWorld.send_receive, ThreadWorld.all_gather

    def count_message(world: ThreadWorld, sent: Any, to: int, into: Any, source: int) -> None:
        send_receive(world, sent, to, into, source)
        if into is not None:
            path = source, world.place.rank
            received[path] = received.get(path, 0) + len(into)

    def count_gathered(world: ThreadWorld, value: Any) -> list[Any]:
        values = all_gather(world, value)
        gathered[world.place.rank] += len(pickle.dumps(values))
        return values

    def settle(world: ThreadWorld) -> list[Landed]:
        node, local_rank = world.place.node, world.place.local_rank
        size = 2 * blocks * BLOCK_BYTES
        listing = Listing(Names.of(["big"]), np.array([size]), np.array([5]), np.array([-1]))
        with DestinationFolder(tmp_path / f"node{node}") as folder:
            shared = SharedFiles(folder, listing, "0123abcd", checksum=True)
            first, *others = range(local_rank * blocks, (local_rank + 1) * blocks)
            shared.write(0, first * BLOCK_BYTES, memoryview(bytes(BLOCK_BYTES)))
            for number in others:
                shared.written[0].add(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES, number)
            places = world.all_gather(world.place)
            gathered[world.place.rank] = 0
            landed = settle_shared(shared, world, places)
        assert shared.written == {}
        return landed

    monkeypatch.setattr(ThreadWorld, "send_receive", count_message)
    monkeypatch.setattr(ThreadWorld, "all_gather", count_gathered)
    for node in range(2):
        (tmp_path / f"node{node}").mkdir()
    landed = run_ranks([2, 2], settle)
    assert [len(files) for files in landed] == [1, 0, 1, 0]
    assert landed[0][0].blocks == landed[2][0].blocks
    assert len(landed[0][0].blocks) == 4 * (2 * blocks - 1)
    assert received == {(1, 0): 48 + 16 * blocks, (3, 2): 48 + 16 * blocks}
    assert max(gathered) < 500


@pytest.mark.slow
def test_what_is_written_takes_little_memory() -> None:
    """12 bytes for each block, in arrays that grow ahead by a part of their size."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        written = Written()
        for number in range(20_000):
            half = number * BLOCK_BYTES + BLOCK_BYTES // 2
            written.add(half, half + BLOCK_BYTES // 2, 1)
            written.add(half - BLOCK_BYTES // 2, half, 2)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(written) == 20_000
    assert after - before < 16 * 20_000


@given(st.lists(st.integers(1, 900_000), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 1 << 20))
def test_the_checksums_of_blocks_do_not_tell_who_wrote(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int], ranks: int, seed: int
) -> None:
    data = memoryview(random_module.Random(seed).randbytes(sum(pieces)))
    starts = np.cumsum([0, *pieces]).tolist()
    listing = Listing(Names.of(["big"]), np.array([len(data)]), np.array([5]), np.array([-1]))
    with DestinationFolder(tmp_path_factory.mktemp("shared")) as folder:
        group = [SharedFiles(folder, listing, "0123abcd", checksum=True) for _ in range(ranks)]
        for number, (start, stop) in enumerate(pairwise(starts)):
            group[number % ranks].write(0, start, data[start:stop])
        landed = group[0].settle(0, [rank.written[0].part() for rank in group if rank.written])
        for rank in group:
            rank.close()
    assert (landed.checksum, landed.blocks) == checksums(data)


@pytest.mark.parametrize(
    ("parts", "checksum", "problem"),
    [
        ([(0, b"01234")], -1, "lacks parts that other ranks should have written"),
        ([(0, b"0123"), (5, b"56789")], -1, "lacks parts that other ranks should have written"),
        ([(0, b"0123456789")], 7, "where the index says 00000007: it was damaged or written to"),
    ],
)
def test_what_is_not_whole_is_refused(
    parts: list[tuple[int, bytes]], checksum: int, problem: str, tmp_path: Path
) -> None:
    with DestinationFolder(tmp_path) as folder:
        rank = shared(folder, checksum)
        for start, data in parts:
            rank.write(0, start, memoryview(data))
        with pytest.raises(DataError, match=problem):
            rank.settle(0, [rank.written[0].part()])
        rank.abandon()
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("put", [False, True])
def test_a_temporary_that_is_no_longer_what_ranks_wrote_gets_no_name(put: bool, tmp_path: Path) -> None:
    """It was removed, or another file took its place: a file of zeros under its name would seem whole."""
    with DestinationFolder(tmp_path) as folder:
        rank = shared(folder)
        rank.write(0, 0, memoryview(b"0123456789"))
        rank.close()
        (temporary,) = (tmp_path / "train").iterdir()
        temporary.rename(tmp_path / "elsewhere")
        if put:
            temporary.write_bytes(bytes(10))
        with pytest.raises(DataError, match="was replaced while ranks wrote it" if put else "No such file"):
            rank.settle(0, [rank.written[0].part()])
    assert not (tmp_path / "train" / "big").exists()


def test_an_error_at_the_close_of_a_shared_file_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with DestinationFolder(tmp_path) as folder:
        rank, close = shared(folder), os.close
        rank.write(0, 0, memoryview(b"0123456789"))
        with monkeypatch.context() as patch:
            patch.setattr("staging.landing.shared_files.os.close", refused)
            with pytest.raises(DataError, match=r"train/big.*Disk quota exceeded"):
                rank.close()
        rank.abandon()
    assert contents(tmp_path) == {}


@pytest.fixture
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are cut from 5,000 bytes on, at multiples of 16."""
    monkeypatch.setattr("staging.planning.slices.CUT_BYTES", 5_000)
    monkeypatch.setattr("staging.prepare.CUT_BYTES", 5_000)
    monkeypatch.setattr("staging.planning.slices.ALIGN_BYTES", 16)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two large files among others."""
    random = np.random.default_rng(3)
    (tmp_path / "source/train").mkdir(parents=True)
    for number, size in enumerate(SIZES):
        (tmp_path / f"source/train/{number}").write_bytes(random.bytes(size))
    return tmp_path / "source"


@pytest.mark.slow
@pytest.mark.usefixtures("small_cuts")
@pytest.mark.parametrize("ranks", [[1], [3], [1, 1], [2, 3], [1, 3], [2, 2, 2]])
@pytest.mark.parametrize("path", ["direct", "exchange"])
@pytest.mark.parametrize("placement", ["replicate", "shard"])
def test_ranks_bring_large_files_together(
    source: Path, tmp_path: Path, ranks: list[int], path: Any, placement: Any
) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), placement, path, piece_bytes=1_000)
    report = run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]
    nodes = [tmp_path / f"node{number}" for number in range(len(ranks))]
    expected, found = contents(source), [contents(node) for node in nodes]
    copies = len(ranks) if placement == "replicate" else 1
    assert sum(len(part) for part in found) == copies * len(expected)
    assert all(data == expected[name] for part in found for name, data in part.items())
    assert report.totals.bytes_landed == copies * sum(SIZES)
    assert report.totals.files_landed == copies * len(SIZES)
    assert report.totals.bytes_read == (sum(SIZES) if path == "exchange" else copies * sum(SIZES))
    assert report.totals.files_read == (len(SIZES) if path == "exchange" else copies * len(SIZES))
    for node in nodes:
        assert unfinished(node) == []
        for record in load_records(node):
            assert record.checksum == crc32c(expected[record.name])
            assert (node / record.name).stat().st_mtime_ns == (source / record.name).stat().st_mtime_ns
    if placement == "replicate":
        read = [rank.counters.bytes_read for rank in report.ranks]
        groups = np.split(np.array(read), np.cumsum(ranks)[:-1])
        if path == "exchange":  # where a node has no more lanes than the others have
            assert all(not group[min(ranks) :].any() for group in groups)
            groups = [np.concatenate([group[: min(ranks)] for group in groups])]
        for own in groups:
            assert own.min() > 0
            assert own.max() - own.min() <= 0.15 * own.max()  # of few bytes: small files are not cut
    again = run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]
    assert again.totals.files_landed == 0


@pytest.mark.usefixtures("small_cuts")
def test_who_takes_files_as_they_land_gets_them_from_one_rank(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), piece_bytes=1_000, share_files=False)
    report = run_ranks([3], lambda world: stage(options, world, quiet=True))[0]
    assert contents(tmp_path / "node0") == contents(source)
    assert min(rank.counters.bytes_read for rank in report.ranks) < 0.5 * sum(SIZES) / 3


@pytest.mark.usefixtures("small_cuts")
def test_only_what_a_transform_leaves_plain_is_shared(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    data = np.random.default_rng(1).bytes(40_000)
    (tmp_path / "source/a.bin").write_bytes(data)
    (tmp_path / "source/b.gz").write_bytes(gzip.compress(data))
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), transform="gunzip", plain=("auto",))
    report = run_ranks([4], lambda world: stage(options, world, quiet=True))[0]
    assert contents(tmp_path / "node0") == {"a.bin": data, "b": data}
    packed = (tmp_path / "source/b.gz").stat().st_size
    read = sorted(rank.counters.bytes_read for rank in report.ranks)
    assert sum(read) == len(data) + packed
    assert packed in read  # by one rank
    assert sum(size > 0 for size in read) >= 3


@pytest.mark.usefixtures("small_cuts")
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_damage_is_found_by_the_index(source: Path, tmp_path: Path, path: Any) -> None:
    index = tmp_path / "index"
    write_index(index, make_index(source, 1, show=False))
    flip(source / "train/0")
    options = StageOptions(source, str(tmp_path / "{node}"), path=path, piece_bytes=1_000, index=index)
    with pytest.raises(InputError, match=rf"{source}/train/0: has CRC32C .* where the index says"):
        run_ranks([2, 2], lambda world: stage(options, world, quiet=True))
    for node in ("node0", "node1"):
        assert "train/0" not in contents(tmp_path / node)
        assert unfinished(tmp_path / node) == []


@pytest.mark.usefixtures("small_cuts")
def test_an_error_at_the_close_on_one_rank_ends_all_with_its_own_words(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = SharedFiles.close

    def refused(shared: SharedFiles) -> None:
        close(shared)
        if shared._destination.path.name == "node1":
            raise DataError(shared._destination / "train/0", "cannot be written (Disk quota exceeded)", "free some")

    monkeypatch.setattr(SharedFiles, "close", refused)
    options = StageOptions(source, str(tmp_path / "{node}"), piece_bytes=1_000)
    with pytest.raises(InputError, match=r"node1: .*/node1/train/0: cannot be written \(Disk quota exceeded\); free"):
        run_ranks([2, 2], lambda world: stage(options, world, quiet=True))
    for node in ("node0", "node1"):
        assert unfinished(tmp_path / node) == []


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_ranks_of_mpi_bring_one_giant_file(tmp_path: Path, mpiexec: str, path: str) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/giant").write_bytes(np.random.default_rng(5).bytes(20 << 20))
    words = [mpiexec, "-n", 4, *PLAIN, tmp_path / "source", tmp_path / "out" / "{node}", "--path", path]
    code, _, error = run([*words, "--simulated-nodes", 2, "--report", tmp_path / "report.json"])
    assert code == 0, error
    report = json.loads((tmp_path / "report.json").read_text())
    read = [rank["counters"]["bytes_read"] for rank in report["ranks"]]
    assert sum(read) == (20 << 20) * (1 if path == "exchange" else 2)
    assert max(read) - min(read) <= 0.05 * max(read)
    for node in (tmp_path / "out").iterdir():
        assert contents(node) == contents(tmp_path / "source")
    assert len(list((tmp_path / "out").iterdir())) == 2
