"""Shards that change their homes: nothing is lost, doubled or changed, drawn by seed, and safe to kill."""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import staging.reshuffle as module
from staging.bookkeeping import BOOKKEEPING
from staging.cli_options import add_arguments, options_of
from staging.errors import InputError
from staging.landing.sinks import Landed
from staging.ledger.journal import Journal
from staging.ledger.manifest import Manifest, load_records
from staging.ledger.verify import reread
from staging.options import StageOptions
from staging.ranks.world import Alone, Place
from staging.reshuffle import ReshuffleReport, reshuffle
from staging.stage import stage
from staging.storage.destination_folder import DestinationFolder
from tests.staging.test_stage import contents, stage_all
from tests.staging.thread_world import run_ranks

SHARED = ("validation/*", "stats.h5")


@pytest.fixture
def options(tmp_path: Path) -> StageOptions:
    """30 samples of two files each, and files that every node gets; staged nowhere yet."""
    random = np.random.default_rng(3)
    root = tmp_path / "source"
    for folder, count in (("train", 30), ("validation", 4)):
        (root / folder).mkdir(parents=True)
        for number in range(count):
            (root / folder / f"{number:02d}_data.npy").write_bytes(random.bytes(int(random.integers(0, 30_000))))
            (root / folder / f"{number:02d}_label.npy").write_bytes(random.bytes(64))
    (root / "stats.h5").write_bytes(b"shared")
    return StageOptions(root, str(tmp_path / "{node}"), "shard", seed=5, piece_bytes=10_000, replicate_also=SHARED)


def on_nodes(tmp_path: Path, nodes: int) -> list[dict[str, bytes]]:
    return [contents(tmp_path / f"node{node}") for node in range(nodes)]


def check(options: StageOptions, tmp_path: Path, nodes: int) -> list[set[str]]:
    """Each training file lies on one node, whole and named, the shared ones on all; returns the names on each."""
    expected = contents(options.source)
    train = {name for name in expected if name.startswith("train/")}
    found = on_nodes(tmp_path, nodes)
    shards = [set(part) & train for part in found]
    assert sorted(name for shard in shards for name in shard) == sorted(train)
    for node, part in enumerate(found):
        assert part == {name: expected[name] for name in shards[node] | (set(expected) - train)}
        assert set(load_records(tmp_path / f"node{node}").position) == set(part)
        assert reread(tmp_path / f"node{node}", 1).bad == ()
        assert Journal(tmp_path / f"node{node}").is_done()
        pairs = {name.replace("_label", "_data") for name in shards[node]}
        assert {name.replace("_data", "_label") for name in pairs} | pairs == shards[node]
    return shards


def shuffle_all(ranks: list[int], options: StageOptions, shuffle: int) -> ReshuffleReport:
    reports = run_ranks(ranks, lambda world: reshuffle(options, shuffle, world))
    assert len(set(reports)) == 1
    return reports[0]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [[1], [1, 1], [2, 1, 2], [2, 2, 2, 2]])
def test_each_file_is_on_one_node_after_any_number_of_reshuffles(
    options: StageOptions, tmp_path: Path, ranks: list[int]
) -> None:
    stage_all(ranks, options)
    seen = [check(options, tmp_path, len(ranks))]
    total = sum(len(data) for name, data in contents(options.source).items() if name.startswith("train/"))
    for shuffle in (1, 2, 3):
        report = shuffle_all(ranks, options, shuffle)
        seen.append(check(options, tmp_path, len(ranks)))
        moved = sum(len(now - before) for before, now in zip(seen[-2], seen[-1], strict=True))
        assert report.files == moved
        sizes = [sum((options.source / name).stat().st_size for name in shard) for shard in seen[-1]]
        assert max(sizes) - min(sizes) <= 30_064
        assert sum(sizes) == total
    if len(ranks) > 1:
        assert len({tuple(map(frozenset, shards)) for shards in seen}) == 4
    again = shuffle_all(ranks, options, 3)
    assert (again.files, again.bytes) == (0, 0)


def test_homes_are_those_of_a_staging_with_the_same_draw_and_of_no_other_seed(
    options: StageOptions, tmp_path: Path
) -> None:
    stage_all([1, 1, 1], options)
    shuffle_all([1, 1, 1], options, 2)
    shuffled = check(options, tmp_path, 3)
    for seed in (5, 6):
        elsewhere = replace(options, destination=str(tmp_path / str(seed) / "{node}"), shuffle=2, seed=seed)
        stage_all([1, 1, 1], elsewhere)
        assert (check(elsewhere, tmp_path / str(seed), 3) == shuffled) is (seed == 5)


def test_all_arrays_of_a_row_of_an_hdf5_file_stay_on_one_node(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for name, shape in {"input": (64, 30), "targets": (64, 3), "weight": (64,)}.items():
            file[name] = np.ones(shape, "f4")
    options = StageOptions(tmp_path / "all.h5", str(tmp_path / "{node}"), "shard", seed=5)
    stage_all([1] * 4, options)
    seen = [[Counter(name[:8] for name in part) for part in on_nodes(tmp_path, 4)]]
    shuffle_all([1] * 4, options, 1)
    seen.append([Counter(name[:8] for name in part) for part in on_nodes(tmp_path, 4)])
    for rows in seen:
        assert [(len(part), set(part.values())) for part in rows] == [(16, {3})] * 4
    assert seen[0] != seen[1]


def test_a_staging_puts_reshuffled_files_where_its_options_say(options: StageOptions, tmp_path: Path) -> None:
    stage_all([1, 1], options)
    before = check(options, tmp_path, 2)
    shuffle_all([1, 1], options, 1)
    kept = stage_all([1, 1], replace(options, shuffle=1))
    assert kept.totals.files_landed == 0
    stage_all([1, 1], options)
    assert check(options, tmp_path, 2) == before


@pytest.mark.slow
@pytest.mark.parametrize("step", ["move", "settle", "remove", "sync_filesystem"])
@pytest.mark.parametrize("after", [False, True])
def test_stopped_at_any_step_every_file_is_somewhere_and_a_staging_mends_it(
    options: StageOptions, tmp_path: Path, step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if killed before or after each step: what is there then is all there is."""
    stage_all([1, 1], options)
    original: Callable[..., object] = getattr(module, step)

    def stop(*args: object) -> None:
        if after:
            original(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, step, stop)
        with pytest.raises(KeyboardInterrupt):
            shuffle_all([1, 1], options, 1)
    expected = contents(options.source)
    named = {
        record.name for node in range(2) for record in load_records(tmp_path / f"node{node}")
        if contents(tmp_path / f"node{node}").get(record.name) == expected[record.name]
    }  # fmt: skip
    assert named == set(expected)
    with pytest.raises(InputError, match="was not staged to its end"):
        shuffle_all([1, 1], options, 1)
    stage_all([1, 1], replace(options, shuffle=1))
    check(options, tmp_path, 2)
    assert not any((tmp_path / f"node{node}" / BOOKKEEPING / "arriving").exists() for node in range(2))


def test_what_arrives_must_fit_beside_what_is_there(
    options: StageOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_all([1, 1], options)
    before = on_nodes(tmp_path, 2)
    monkeypatch.setattr("staging.storage.space.free_bytes", lambda folder: 10_000)
    with pytest.raises(InputError, match="free where staging needs"):
        shuffle_all([1, 1], options, 1)
    assert on_nodes(tmp_path, 2) == before


def test_a_damaged_file_does_not_travel(options: StageOptions, tmp_path: Path) -> None:
    stage_all([1, 1], options)
    for node in range(2):
        for path in (tmp_path / f"node{node}" / "train").iterdir():
            status = path.stat()
            data = bytearray(path.read_bytes())
            if data:
                data[0] ^= 1
                path.write_bytes(data)
                os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    with pytest.raises(InputError, match="CRC32C"):
        shuffle_all([1, 1], options, 1)


def test_what_is_no_shard_is_refused(options: StageOptions, tmp_path: Path) -> None:
    whole = replace(options, placement="replicate", replicate_also=())
    stage_all([1, 1], whole)
    with pytest.raises(InputError, match="holds no shards of 2 nodes, but placement replicate"):
        shuffle_all([1, 1], whole, 1)
    with pytest.raises(InputError, match="has no staging manifest"):
        shuffle_all([1, 1], replace(options, destination=str(tmp_path / "none" / "{node}")), 1)


def test_a_file_on_two_nodes_is_refused(options: StageOptions, tmp_path: Path) -> None:
    stage_all([1, 1], options)
    one, two = (load_records(tmp_path / f"node{node}") for node in range(2))
    file = next(file for file in one if file.name not in two)
    Manifest(tmp_path / "node1").append([file])
    with pytest.raises(InputError, match=f"{file.name}: is on two nodes; stage again, which mends that"):
        shuffle_all([1, 1], options, 1)


@pytest.mark.parametrize("size", [4, 5])
def test_a_file_that_is_not_as_it_landed_is_left_and_named(
    options: StageOptions, tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the end of a staging, where a manifest, perhaps forged, has a file whose home is another node."""
    stage_all([1, 1], options)
    found = load_records(tmp_path / "node1")
    file = next(file for file in found if file.name.startswith("train/") and file.name.endswith("_label.npy"))
    mine = tmp_path / "node0" / file.name
    assert not mine.exists()
    mine.write_bytes(bytes(size))
    Manifest(tmp_path / "node0").append([replace(file, size=4)])
    run_ranks([1, 1], lambda world: stage(options, world))
    assert mine.read_bytes() == bytes(size)
    assert f"node0: left {file.name}, which is not as staging put it there" in capsys.readouterr().err
    assert file.name not in load_records(tmp_path / "node0")
    mine.unlink()
    check(options, tmp_path, 2)


def test_what_is_in_the_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / BOOKKEEPING / "arriving").mkdir(parents=True)
    (tmp_path / BOOKKEEPING / "arriving" / "a").touch()
    (tmp_path / "a").mkdir()
    file, place = Landed("a", 0, 0, "a", 0), Alone().place
    with (
        DestinationFolder(tmp_path) as folder,
        pytest.raises(InputError, match=r"a: cannot be put in place \(Is a directory\); stage again"),
    ):
        module.settle(folder, [file], place)
    (tmp_path / "a").rmdir()
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", ns=(0, 0))
    Manifest.open(tmp_path, {}).append([file])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("staging.storage.destination_folder.os.unlink", refuse)
    with (
        DestinationFolder(tmp_path) as folder,
        pytest.raises(InputError, match=r"a: cannot be removed \(Operation not permitted\); check its permissions"),
    ):
        module.remove(folder, [file], place)


def test_transformed_files_move_with_their_source(tmp_path: Path) -> None:
    source = tmp_path / "source" / "train"
    source.mkdir(parents=True)
    plain = {f"train/{number:02d}.bin": bytes([number]) * 1000 * number for number in range(12)}
    for name, data in plain.items():
        (tmp_path / "source" / f"{name}.gz").write_bytes(gzip.compress(data))
    options = StageOptions(source.parent, str(tmp_path / "{node}"), "shard", transform="gunzip")
    stage_all([1, 1], options)
    before = on_nodes(tmp_path, 2)
    assert shuffle_all([1, 1], options, 1).files > 0
    found = on_nodes(tmp_path, 2)
    assert found != before
    assert not set(found[0]) & set(found[1])
    assert found[0] | found[1] == plain
    assert {record.source for record in load_records(tmp_path / "node0")} == {f"{name}.gz" for name in found[0]}
    stage_all([1, 1], options)
    assert on_nodes(tmp_path, 2) == before


def test_shared_files_need_a_shard(options: StageOptions) -> None:
    with pytest.raises(InputError, match=r"replicate_also \(validation/\* stats.h5\) needs placement shard"):
        run_ranks([1, 1], lambda world: stage(replace(options, placement="replicate"), world, quiet=True))


def test_the_command_line_takes_patterns() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = ["a", "b", "--placement", "shard", "--replicate-also", "validation/*", "--replicate-also", "stats.h5"]
    assert options_of(parser.parse_args(words)).replicate_also == SHARED


ENDLESS = """
import sys
from pathlib import Path
from staging.options import StageOptions
from staging.reshuffle import reshuffle
from tests.staging.thread_world import run_ranks

source, destination, first = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
options = StageOptions(source, destination, "shard", seed=5, replicate_also=("validation/*", "stats.h5"))
print("ready", flush=True)
for shuffle in range(first, first + 10_000):
    run_ranks([1, 1], lambda world: reshuffle(options, shuffle, world))
"""


@pytest.mark.slow
def test_killed_at_random_instants_nothing_is_lost(options: StageOptions, tmp_path: Path) -> None:
    """SIGKILL: what the manifests name and hold together is the whole set each time, and a staging makes it right."""
    random = np.random.default_rng(11)
    expected = contents(options.source)
    stage_all([1, 1], options)
    for attempt in range(8):
        command = [sys.executable, "-c", ENDLESS, str(options.source), options.destination, str(1000 * attempt)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(float(random.uniform(0.02, 0.6)))
        process.kill()
        process.wait()
        process.stdout.close()
        held: set[str] = set()
        for folder in (tmp_path / "node0", tmp_path / "node1"):
            found = contents(folder)
            held |= {file.name for file in load_records(folder) if found.get(file.name) == expected[file.name]}
        assert held == set(expected)
        stage_all([1, 1], replace(options, shuffle=attempt))
        check(options, tmp_path, 2)


def test_names_leave_the_manifest_once_the_disk_has_forgotten_the_files(
    options: StageOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash could bring a file back on the node that it left, where nothing would know it any more."""
    stage_all([1, 1], options)
    place = Place(0, 1, 0, 1, 0, 1, "node0")
    file = next(iter(load_records(tmp_path / "node0")))
    at_sync: list[tuple[bool, bool]] = []

    def look(destination: Path, _: int | None) -> None:
        at_sync.append(((destination / file.name).exists(), file.name in load_records(destination)))

    monkeypatch.setattr(module, "sync_filesystem", look)
    with DestinationFolder(tmp_path / "node0") as folder:
        module.remove(folder, [file], place)
    assert at_sync == [(False, True)]
    assert file.name not in load_records(tmp_path / "node0")
