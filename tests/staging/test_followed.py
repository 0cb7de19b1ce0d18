"""Changes are followed through transforms: by time and size, what is no longer held, folders in the place of files."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from staging.errors import InputError
from staging.ledger.journal import Journal
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.reshuffle import reshuffle
from staging.stage import stage
from tests.staging.processes import contents
from tests.staging.test_collisions import TIME_S, pack, put, stage_all
from tests.staging.thread_world import run_ranks

MODES: list[dict[str, bool]] = [{}, {"update": True}, {"repair": True}]


@pytest.mark.parametrize("mode", MODES)
def test_another_size_with_the_same_time(tmp_path: Path, mode: dict[str, bool]) -> None:
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"), transform="gunzip", plain=("*.bin",))
    put(tmp_path / "source/f.gz", gzip.compress(b"old"))
    put(tmp_path / "source/g.gz", gzip.compress(b"stays"))
    put(tmp_path / "source/large.bin", bytes(9 << 20))
    stage(options, Alone(), quiet=True)
    assert stage(options, Alone(), quiet=True).totals.files_landed == 0
    put(tmp_path / "source/f.gz", gzip.compress(b"new, and longer"))
    put(tmp_path / "source/large.bin", bytes(10 << 20))
    report = stage(replace(options, **mode), Alone(), quiet=True)
    assert (report.totals.files_landed, report.totals.files_changed) == (2, 2 if "update" in mode else 0)
    assert contents(tmp_path / "out") == {"f": b"new, and longer", "g": b"stays", "large.bin": bytes(10 << 20)}
    assert stage(options, Alone(), quiet=True).totals.files_landed == 0


def test_a_manifest_without_sizes_of_sources_holds(tmp_path: Path) -> None:
    put(tmp_path / "source/f.gz", gzip.compress(b"content"))
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"), transform="gunzip")
    stage(options, Alone(), quiet=True)
    path = tmp_path / "out/.staging/manifest.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    assert lines[1].pop("source_size") == (tmp_path / "source/f.gz").stat().st_size
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert stage(options, Alone(), quiet=True).totals.files_landed == 0


def test_shards_keep_the_sizes_as_they_move(tmp_path: Path) -> None:
    for number in range(8):
        put(tmp_path / f"source/{number}.gz", gzip.compress(bytes(100 * number)))
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), "shard", transform="gunzip")
    stage_all([1, 1], options)
    assert run_ranks([1, 1], lambda world: reshuffle(options, 1, world))[0].files > 0
    sizes = {f"{number}": (tmp_path / f"source/{number}.gz").stat().st_size for number in range(8)}
    found = [file for node in range(2) for file in load_records(tmp_path / f"node{node}")]
    assert {file.name: file.source_size for file in found} == sizes


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [[1], [2, 1]])
@pytest.mark.parametrize("placement", ["replicate", "shard"])
@pytest.mark.parametrize("same_time", [False, True])
def test_an_archive_that_lost_a_member(tmp_path: Path, ranks: list[int], placement: Any, same_time: bool) -> None:
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), placement, transform="untar")
    pack(tmp_path / "source/s.tar", {"a": b"1", "b": b"2", "d": b"4"})
    pack(tmp_path / "source/t.tar", {"other": b"5"})
    stage_all(ranks, options)
    pack(tmp_path / "source/s.tar", {"a": b"1", "c": bytes(20_000)}, TIME_S + (not same_time))
    for _ in range(2):
        with pytest.raises(InputError, match=r"holds b, which this staging would not put there; .*--update"):
            stage_all(ranks, options)
    assert not all(Journal(tmp_path / f"node{node}").is_done() for node in range(len(ranks)))
    stage_all(ranks, replace(options, update=True, drop_vanished=True))
    found = [contents(tmp_path / f"node{node}") for node in range(len(ranks))]
    assert {name for part in found for name in part} == {"a", "c", "other"}
    assert stage_all(ranks, options).totals.files_landed == 0


@pytest.mark.parametrize("transform", ["", "gunzip"])
@pytest.mark.parametrize("ranks", [[1], [2, 1]])
def test_files_that_became_folders_and_folders_files(tmp_path: Path, transform: str, ranks: list[int]) -> None:
    source, suffix = tmp_path / "source", ".gz" if transform else ""
    options = StageOptions(source, str(tmp_path / "{node}"), transform=transform, update=True)
    for name in ("u/a", "u/b/c", "u/b/deep/d", "stays"):
        put(source / f"{name}{suffix}", gzip.compress(b"old"))
    stage_all(ranks, options)
    (source / f"u/a{suffix}").unlink()
    shutil.rmtree(source / "u/b")
    for name in ("u/a/x", "u/b"):
        put(source / f"{name}{suffix}", gzip.compress(b"new"))
    before = contents(tmp_path / "node0")
    with pytest.raises(InputError, match=r"holds u/(a|b/c), where a folder is to be .* with --drop-vanished"):
        stage_all(ranks, options)
    assert contents(tmp_path / "node0") == before
    report = stage_all(ranks, replace(options, drop_vanished=True))
    assert report.totals.files_dropped == 3 * len(ranks)
    for node in range(len(ranks)):
        assert sorted(contents(tmp_path / f"node{node}")) == ["stays", "u/a/x", "u/b"]
    assert stage_all(ranks, options).totals.files_landed == 0


def test_what_was_written_to_in_the_place_of_a_folder_stays(tmp_path: Path) -> None:
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"), update=True, drop_vanished=True)
    put(tmp_path / "source/a", b"old")
    stage(options, Alone(), quiet=True)
    (tmp_path / "source/a").unlink()
    put(tmp_path / "source/a/x", b"new")
    put(tmp_path / "out/a", b"somebody's own")
    with pytest.raises(InputError, match=r"holds a, where a folder is to be of that name, .*; remove it, or"):
        stage(options, Alone(), quiet=True)
    assert contents(tmp_path / "out") == {"a": b"somebody's own"}
