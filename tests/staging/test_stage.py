"""Whole stagings: every placement, path and transform ends with the content of a plain copy; resumes; refuses."""

from __future__ import annotations

import gzip
import os
import signal
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from staging.errors import DataError, InputError
from staging.ledger.journal import Journal
from staging.ledger.jsonl import read_lines
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.ranks.abort import AbortWatcher
from staging.ranks.collective_errors import Ranks
from staging.ranks.signals import Interrupted
from staging.ranks.world import Alone
from staging.report import StagingReport
from staging.source.page_cache import LOCAL_DISKS
from staging.stage import stage
from staging.storage.space import filesystem_type
from tests.staging.thread_world import ThreadWorld, run_ranks

SIZES = [0, 1, 4096, 70_000, 300, 12_345, 5, 50_000, 2_000, 2_000]
PIECE = 10_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files of several sizes in two folders."""
    random = np.random.default_rng(7)
    root = tmp_path / "source"
    for number, size in enumerate(SIZES):
        path = root / ("train" if number % 3 else "validation") / f"{number:02d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.bytes(size))
    (root / "stats.h5").write_bytes(b"shared")
    return root


def contents(root: Path) -> dict[str, bytes]:
    """All files below ``root`` but the bookkeeping."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and ".staging" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def stage_all(ranks: list[int], options: StageOptions) -> StagingReport:
    """Stage on threads that stand for ranks on nodes; returns the report of the first."""
    return run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]


@pytest.mark.parametrize("ranks", [[1], [3], [1, 1], [2, 1], [2, 2], [1, 1, 1, 1]])
@pytest.mark.parametrize("path", ["direct", "exchange"])
@pytest.mark.parametrize("placement", ["replicate", "shard"])
def test_ends_as_a_plain_copy(source: Path, tmp_path: Path, ranks: list[int], path: Any, placement: Any) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), placement, path, piece_bytes=PIECE, verify="reread")
    report = stage_all(ranks, options)
    expected, nodes = contents(source), len(ranks)
    found = [contents(tmp_path / f"node{node}") for node in range(nodes)]
    total = sum(len(data) for data in expected.values())
    if placement == "replicate":
        assert all(part == expected for part in found)
    else:
        assert sum(len(part) for part in found) == len(expected)
        assert {name: data for part in found for name, data in part.items()} == expected
    copies = nodes if placement == "replicate" else 1
    counted = report.totals
    assert counted.bytes_landed == copies * total
    assert counted.files_landed == copies * len(expected)
    assert counted.bytes_read == (total if path == "exchange" or placement == "shard" else copies * total)
    assert counted.bytes_sent == counted.bytes_received
    times = {name: (source / name).stat().st_mtime_ns for name in expected}
    for node, part in enumerate(found):
        assert {name: (tmp_path / f"node{node}" / name).stat().st_mtime_ns for name in part} == {
            name: times[name] for name in part
        }
    assert len(report.nodes()) == nodes
    for rank in report.ranks:
        assert sum(rank.phases_s.values()) == pytest.approx(rank.seconds, rel=0.01)


@pytest.mark.parametrize("path", ["direct", "exchange"])
@pytest.mark.parametrize("placement", ["replicate", "shard"])
def test_transforms_on_the_way(tmp_path: Path, path: Any, placement: Any) -> None:
    random = np.random.default_rng(1)
    plain = {f"train/{i}.bin": random.bytes(3000 * i) for i in range(6)}
    for name, data in plain.items():
        packed = tmp_path / "source" / f"{name}.gz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(data))
    options = StageOptions(
        tmp_path / "source", str(tmp_path / "{node}"), placement, path, transform="gunzip", piece_bytes=PIECE
    )
    report = stage_all([2, 1], options)
    found = [contents(tmp_path / f"node{node}") for node in range(2)]
    assert {name: data for part in found for name, data in part.items()} == plain
    if placement == "replicate":
        assert found == [plain, plain]
    landed = sum(len(data) for part in found for data in part.values())
    assert report.totals.bytes_landed == landed


def test_shards_are_balanced_and_seeded(source: Path, tmp_path: Path) -> None:
    def shards(seed: int) -> list[set[str]]:
        out = tmp_path / f"seed{seed}-{len(list(tmp_path.iterdir()))}"
        stage_all([1, 1], StageOptions(source, str(out / "{node}"), "shard", seed=seed))
        return [set(contents(out / f"node{node}")) for node in range(2)]

    first, again = shards(1), shards(1)
    assert first == again
    assert any(shards(seed) != first for seed in range(2, 6))
    sizes = {name: len(data) for name, data in contents(source).items()}
    loads = [sum(sizes[name] for name in part) for part in first]
    assert abs(loads[0] - loads[1]) <= max(sizes.values())


def test_times_are_copied_and_owners_permissions_and_attributes_are_not(source: Path, tmp_path: Path) -> None:
    path, copy = source / "train" / "04.bin", tmp_path / "out/train/04.bin"
    path.chmod(0o751)
    if os.geteuid() == 0:
        os.chown(path, 4321, 1234)
    with suppress(OSError):  # some filesystems have none
        os.setxattr(path, "user.origin", b"here")
    os.utime(path, ns=(1, 1_234_567_890))
    stage(StageOptions(source, str(tmp_path / "out")), Alone(), quiet=True)
    mask = os.umask(0)
    os.umask(mask)
    status = copy.stat()
    assert status.st_mtime_ns == 1_234_567_890
    assert stat.S_IMODE(status.st_mode) == 0o666 & ~mask
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    assert "user.origin" not in os.listxattr(copy)


def test_a_second_run_brings_only_what_is_missing(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), path="exchange", piece_bytes=PIECE)
    stage_all([1, 1], options)
    (tmp_path / "node1" / "train" / "04.bin").unlink()
    (tmp_path / "node0" / "stats.h5").write_bytes(b"cut")
    report = stage_all([1, 1], options)
    assert contents(tmp_path / "node0") == contents(tmp_path / "node1") == contents(source)
    assert report.totals.bytes_read == SIZES[4] + len(b"shared")
    assert report.totals.files_landed == 2
    assert report.totals.files_present == 2 * 11 - 2


def test_a_source_that_changed_is_brought_again(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"))
    stage(options, Alone(), quiet=True)
    (source / "train" / "04.bin").write_bytes(b"new")
    os.utime(source / "train" / "04.bin", ns=(1, 1))
    report = stage(options, Alone(), quiet=True)
    assert report.totals.files_landed == 1
    assert contents(tmp_path / "out") == contents(source)


def test_what_the_source_no_longer_has_is_refused(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"))
    stage(options, Alone(), quiet=True)
    (source / "train" / "04.bin").unlink()
    with pytest.raises(InputError, match=r"holds train/04.bin, which this staging would not put there; .*--clean"):
        stage(options, Alone(), quiet=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": Path("/nowhere/at/all")}, "/nowhere/at/all does not exist"),
        ({"destination": "$UNSET_FOR_SURE/x"}, "UNSET_FOR_SURE, which is not set"),
        ({"destination": "/tmp/{host}"}, "the fields are {node} and {rank}"),
        ({"transform": "gunzp"}, "transform 'gunzp' is not known"),
        ({"threads": 0}, "threads (0) must be at least 1"),
        ({"piece_bytes": 0}, "piece_bytes (0) must be at least 1"),
        ({"include": ("*.nothing",)}, "*.nothing"),
        ({"first": 0}, "first (0) must be at least 1"),
    ],
)
def test_what_is_refused_before_anything_is_touched(source: Path, tmp_path: Path, change: Any, words: str) -> None:
    options = replace(StageOptions(source, str(tmp_path / "out")), **change)
    with pytest.raises(InputError) as caught:
        stage(options, Alone(), quiet=True)
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_two_entries_that_would_land_as_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(gzip.compress(b"plain name"))
    (tmp_path / "source" / "a.gz").write_bytes(gzip.compress(b"other name"))
    with pytest.raises(InputError, match=r"a\.gz: would become a, and so would a; exclude one of them"):
        stage(StageOptions(tmp_path / "source", str(tmp_path / "out"), transform="gunzip"), Alone(), quiet=True)


def test_two_nodes_into_one_folder_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two nodes share this destination"):
        stage_all([1, 1], StageOptions(source, str(tmp_path / "out")))


def test_another_placement_is_refused(source: Path, tmp_path: Path) -> None:
    stage_all([1], StageOptions(source, str(tmp_path / "{node}")))
    with pytest.raises(InputError, match=r"holds a staging with placement \"replicate\", not \"shard\""):
        stage_all([1], StageOptions(source, str(tmp_path / "{node}"), "shard"))


@pytest.mark.slow
def test_a_file_that_vanishes_midway_stops_it_and_keeps_the_rest(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import staging.stage

    real = staging.stage.prepare

    def then_remove(*words: Any, **more: Any) -> Any:
        prepared = real(*words)
        (source / "validation" / "09.bin").unlink(missing_ok=True)
        return prepared

    monkeypatch.setattr(staging.stage, "prepare", then_remove)
    options = StageOptions(source, str(tmp_path / "out"), threads=1, piece_bytes=1)
    with pytest.raises(DataError, match=r"09\.bin: vanished from the source"):
        stage(options, Alone(), quiet=True)
    out = contents(tmp_path / "out")
    assert all(data == (source / name).read_bytes() for name, data in out.items())
    assert set(load_records(tmp_path / "out").position) <= set(out)


def test_the_report_as_json_and_as_a_table(source: Path, tmp_path: Path) -> None:
    report = stage_all([2, 1], StageOptions(source, str(tmp_path / "{node}"), path="exchange", piece_bytes=PIECE))
    found = report.as_dict()
    total = sum(SIZES) + len(b"shared")
    assert (found["files"], found["bytes_read"], found["bytes_landed"]) == (22, total, 2 * total)
    assert found["totals"]["bytes_sent"] >= total
    assert {node["name"] for node in found["nodes"]} == {"node0", "node1"}
    assert found["slowest_node_s"] >= found["median_node_s"] > 0
    assert 0 < found["bound_share"] <= 1.01
    lines = report.table().splitlines()
    assert max(len(line) for line in lines[:3]) <= 100
    assert "checksums inside" in lines[-1]
    assert "flushed to the device" in lines[-1]


@pytest.mark.parametrize(("path", "reading"), [("exchange", [True, False, False, True]), ("direct", [True] * 4)])
def test_a_rank_without_a_lane_waits(path: Any, reading: list[bool], source: Path, tmp_path: Path) -> None:
    report = stage_all([3, 1], StageOptions(source, str(tmp_path / "{node}"), path=path, piece_bytes=PIECE))
    assert [rank.counters.bytes_read > 0 for rank in report.ranks] == reading


def test_world_of_one_needs_no_mpi() -> None:
    world = Alone("here")
    assert world.all_gather(3) == [3]
    with pytest.raises(RuntimeError, match="no one to send to"):
        world.send_receive(None, 0, None, 0)
    assert isinstance(world, Alone)
    assert not isinstance(world, ThreadWorld)


@pytest.mark.parametrize(
    ("transform", "problem"),
    [
        ("gunzip", r"{bad}: is not gzip; leave it out \(--exclude\)"),
        ("gunzip+tfrecord-to-npy", r"{good}: sample: record 0 at byte 0 has a length"),
    ],
)
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_a_transform_that_fails_names_the_file_in_full(tmp_path: Path, path: Any, transform: str, problem: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    name = "sample.gz" if transform == "gunzip+tfrecord-to-npy" else "sample.tar"
    (source / name).write_bytes(gzip.compress(bytes(100)) if name == "sample.gz" else bytes(100))
    options = StageOptions(source, str(tmp_path / "{node}"), path=path, transform=transform, piece_bytes=PIECE)
    with pytest.raises(DataError, match=problem.format(bad=source / "sample.tar", good=source / "sample.gz")):
        stage_all([1], options)


@pytest.mark.parametrize(("piece_bytes", "named"), [(1, "stats.h5"), (1 << 20, "stats.h5 and 7 more files")])
def test_a_bit_that_flips_on_its_way_is_found(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, named: str
) -> None:
    send_receive = ThreadWorld.send_receive

    def damage(world: ThreadWorld, sent: Any, to: int, received: Any, source: int) -> None:
        send_receive(world, sent, to, received, source)
        if received is not None and world.place.node == 1:
            received[0] ^= 1

    monkeypatch.setattr(ThreadWorld, "send_receive", damage)
    options = StageOptions(source, str(tmp_path / "{node}"), path="exchange", piece_bytes=piece_bytes)
    words = rf"^{named}: was damaged on its way from node 0 to node 1 \(CRC32C \w+, sent \w+\); check the network"
    with pytest.raises(DataError, match=words):
        stage_all([1, 1], options)


def test_the_first_reason_of_an_abort_is_written_down(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = AbortWatcher(Ranks(Alone()), program="test")

    def end_from_elsewhere(*_: object, **__: object) -> None:
        assert watcher.on_abort is not None
        watcher.on_abort("rank 1 on node1: the disk is gone")
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr("staging.stage.move_directly", end_from_elsewhere)
    with pytest.raises(Interrupted):
        stage(StageOptions(source, str(tmp_path / "out")), Alone(), quiet=True, watcher=watcher)
    ends = [line for line in read_lines(Journal(tmp_path / "out").path) if line.get("event") == "end"]
    assert [(line["outcome"], line["reason"]) for line in ends] == [("aborted", "rank 1 on node1: the disk is gone")]


def test_an_exchange_of_nothing_takes_no_buffers(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), path="exchange")
    stage_all([1, 1], options)
    monkeypatch.delattr("staging.stage.Lane")
    again = stage_all([1, 1], options).totals
    assert (again.files_landed, again.files_present) == (0, 2 * len(contents(source)))


@pytest.mark.parametrize("one_file", [False, True])
def test_cold_reads_come_from_the_disk(tmp_path: Path, one_file: bool) -> None:
    if filesystem_type(tmp_path) not in LOCAL_DISKS:
        pytest.skip(f"needs a folder on a local disk, not on {filesystem_type(tmp_path)}")
    source = tmp_path / ("one.h5" if one_file else "source")
    if one_file:
        with h5py.File(source, "w") as file:
            file["data"] = np.random.default_rng(1).random((64, 32, 32))
    else:
        source.mkdir()
        for number in range(16):
            (source / f"{number}").write_bytes(os.urandom(64 << 10))
    os.sync()  # pages that are not on the disk yet are never dropped
    # The kernel counts code that is read from the disk when it is first used, too.
    stage(StageOptions(source, str(tmp_path / "first")), Alone(), quiet=True)
    for expected in ("warm", "cold"):
        # To drop pages is advice, which the kernel does not follow while something holds them, such as another's sync.
        found = set()
        for number in range(3):
            options = StageOptions(source, str(tmp_path / f"{expected}{number}"), cold=expected == "cold")
            found.add(stage(options, Alone(), quiet=True).ranks[0].cache)
            if expected in found:
                break
        assert expected in found
