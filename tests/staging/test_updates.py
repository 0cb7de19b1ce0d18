"""A source that changed is followed: what is new or other comes, and what vanished leaves if that is asked for."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from staging.errors import InputError
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.present import drop
from staging.ranks.world import Alone
from staging.source.make_index import index_dataset
from staging.stage import stage
from staging.verification import verify
from tests.staging.made_sources import pack
from tests.staging.processes import contents, make_tree
from tests.staging.spoiled import flip, read_of
from tests.staging.staged_by_threads import stage_all, verify_all

FILES = 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Some files."""
    make_tree(tmp_path / "source", FILES)
    return tmp_path / "source"


def change(source: Path) -> tuple[str, str, list[str]]:
    """Change one file of a source, add one, and take two with their folder away; their names."""
    make_tree(source, 1, first=100)
    (source / "train/00001.bin").write_bytes(b"changed")
    old = source / "validation"
    gone = sorted(f"validation/{path.name}" for path in old.iterdir())
    added = next(name for name in contents(source) if "00100" in name)
    shutil.rmtree(old)
    return "train/00001.bin", added, gone


def test_a_changed_source_is_followed(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), update=True)
    stage_all([2, 1], options)
    changed, added, gone = change(source)
    with pytest.raises(InputError, match=r"which this staging would not put there; .*--update"):
        stage_all([2, 1], StageOptions(source, str(tmp_path / "{node}")))
    report = stage_all([2, 1], options)
    assert report.totals.bytes_read == 2 * read_of(source, [changed, added])
    assert (report.totals.files_changed, report.totals.files_vanished) == (2, 2 * len(gone))
    for node in ("node0", "node1"):
        assert sorted(contents(tmp_path / node)) == sorted([*contents(source), *gone])
    assert "stay though they vanished from the source (--drop-vanished)" in report.sentence()
    dropping = StageOptions(source, str(tmp_path / "{node}"), update=True, drop_vanished=True)
    report = stage_all([2, 1], dropping)
    assert (report.totals.files_landed, report.totals.files_dropped) == (0, 2 * len(gone))
    for node in ("node0", "node1"):
        assert contents(tmp_path / node) == contents(source)
        assert not (tmp_path / node / "validation").exists()
    assert verify_all([2, 1], tmp_path).is_good
    assert stage_all([2, 1], StageOptions(source, str(tmp_path / "{node}"))).totals.files_landed == 0


def test_shards_follow_too(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), "shard", update=True, drop_vanished=True)
    stage_all([1, 1], options)
    change(source)
    keeping = StageOptions(source, str(tmp_path / "{node}"), "shard", update=True)
    kept = stage_all([1, 1], keeping).totals.files_vanished
    assert kept > 0
    assert sum(len(contents(tmp_path / f"node{node}")) for node in range(2)) == len(contents(source)) + kept
    assert stage_all([1, 1], options).totals.files_dropped == kept
    found = [contents(tmp_path / f"node{node}") for node in range(2)]
    assert {**found[0], **found[1]} == contents(source)
    assert not set(found[0]) & set(found[1])


def test_what_is_only_not_chosen_is_never_dropped(source: Path, tmp_path: Path) -> None:
    stage_all([1], StageOptions(source, str(tmp_path / "{node}")))
    options = StageOptions(source, str(tmp_path / "{node}"), include=("train/*",), update=True, drop_vanished=True)
    assert stage_all([1], options).totals.files_dropped == 0
    assert contents(tmp_path / "node0") == contents(source)


def test_what_was_written_to_since_stays_and_is_named(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = StageOptions(source, str(tmp_path / "out"), update=True, drop_vanished=True)
    stage(options, Alone(), quiet=True)
    *_, gone = change(source)
    (tmp_path / "out" / gone[0]).write_bytes(b"notes")
    report = stage(options, Alone("here"))
    assert report.totals.files_dropped == len(gone) - 1
    assert f"here: left {gone[0]}, which is not as staging put it there" in capsys.readouterr().err
    assert (tmp_path / "out" / gone[0]).read_bytes() == b"notes"
    assert verify(tmp_path / "out", 1, Alone()).is_good


def test_members_that_an_archive_has_lost_vanish(tmp_path: Path) -> None:
    pack(tmp_path / "source/a.tar", {"one": b"1", "two": b"22"}, 1)
    options = StageOptions(
        tmp_path / "source", str(tmp_path / "out"), transform="untar", update=True, drop_vanished=True
    )
    stage(options, Alone(), quiet=True)
    before = sorted(contents(tmp_path / "out"))
    pack(tmp_path / "source/a.tar", {"one": b"11"}, 2)
    report = stage(options, Alone(), quiet=True)
    assert (report.totals.files_changed, report.totals.files_dropped) == (1, 1)
    assert contents(tmp_path / "out") == {before[0]: b"11"}


def test_a_file_of_another_size_has_changed_whatever_its_time(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"))
    stage(options, Alone(), quiet=True)
    path = source / "train/00001.bin"
    status = path.stat()
    path.write_bytes(b"corrected")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stage(options, Alone(), quiet=True).totals.files_landed == 1
    assert contents(tmp_path / "out") == contents(source)


def test_what_landed_from_a_damaged_source_comes_again_where_an_index_tells(source: Path, tmp_path: Path) -> None:
    """Size and time of the source are as ever; only the index says what its bytes are to be."""
    index_dataset(source, tmp_path / "index")
    before = contents(source)
    damaged = max(before, key=lambda name: len(before[name]))
    flip(source / damaged)
    options = StageOptions(source, str(tmp_path / "out"))
    stage(options, Alone(), quiet=True)
    flip(source / damaged)
    assert contents(source) == before
    assert stage(options, Alone(), quiet=True).totals.files_landed == 0
    report = stage(replace(options, index=tmp_path / "index"), Alone(), quiet=True)
    assert (report.totals.files_landed, report.totals.files_present) == (1, FILES - 1)
    assert contents(tmp_path / "out") == before
    assert stage(replace(options, index=tmp_path / "index"), Alone(), quiet=True).totals.files_landed == 0


def test_a_killed_update_goes_on(source: Path, tmp_path: Path) -> None:
    """A kill between the removal of files and that of their names leaves names without files."""
    options = StageOptions(source, str(tmp_path / "out"), update=True, drop_vanished=True)
    stage(options, Alone(), quiet=True)
    *_, gone = change(source)
    (tmp_path / "out" / gone[0]).unlink()
    assert stage(options, Alone(), quiet=True).totals.files_dropped == len(gone) - 1
    assert verify(tmp_path / "out", 1, Alone()).is_good
    assert contents(tmp_path / "out") == contents(source)


def test_in_a_source_that_cannot_be_asked_nothing_counts_as_vanished(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StageOptions(source, str(tmp_path / "out"), update=True, drop_vanished=True)
    stage(options, Alone(), quiet=True)
    *_, gone = change(source)
    looked = os.lstat

    def stale(path: Any, *words: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(f"{source}/validation"):
            raise OSError(116, "Stale file handle")
        return looked(path, *words, **more)

    monkeypatch.setattr(os, "lstat", stale)
    with pytest.raises(InputError, match=r"cannot be looked for \(Stale file handle\)"):
        stage(options, Alone(), quiet=True)
    assert all((tmp_path / "out" / name).exists() for name in gone)


def test_what_vanished_leaves_the_manifest_once_the_disk_has_forgotten_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "out"
    stage(StageOptions(source, str(destination)), Alone(), quiet=True)
    first, *_ = load_records(destination)
    at_sync: list[tuple[bool, bool]] = []

    def look(folder: Path) -> None:
        at_sync.append(((folder / first.name).exists(), first.name in load_records(folder)))

    monkeypatch.setattr("staging.present.sync_filesystem", look)
    assert drop(destination, [first]) == (1, [])
    assert at_sync == [(False, True)]
    assert first.name not in load_records(destination)
