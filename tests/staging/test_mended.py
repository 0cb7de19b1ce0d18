"""Bad files are all listed, and just these brought again; a source that changed is followed."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from staging.errors import DataError, InputError
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.present import drop
from staging.ranks.world import Alone
from staging.report import StagingReport
from staging.source.make_index import index_dataset
from staging.stage import Staging, stage
from staging.timeline import Landings
from staging.verification import Verification, verify
from tests.staging.processes import contents, journal, make_tree
from tests.staging.spoiled import flip, read_of, spoil
from tests.staging.thread_world import run_ranks

FILES = 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Some files."""
    make_tree(tmp_path / "source", FILES)
    return tmp_path / "source"


def stage_all(ranks: list[int], options: StageOptions) -> StagingReport:
    """Stage on threads that stand for ranks on nodes."""
    return run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]


def verify_all(ranks: list[int], folder: Path) -> Verification:
    """What all ranks find below ``folder/NODE``."""
    found = run_ranks(ranks, lambda world: verify(folder / world.place.node_name, 2, world, quiet=True))
    assert all(other.nodes == found[0].nodes for other in found)
    return found[0]


# -- to find ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [[3], [2, 1]])
def test_all_ranks_look_and_each_file_once(source: Path, tmp_path: Path, ranks: list[int]) -> None:
    stage_all(ranks, StageOptions(source, str(tmp_path / "{node}")))
    last = len(ranks) - 1
    bad = spoil(tmp_path / f"node{last}")
    found = verify_all(ranks, tmp_path)
    assert [node.found.files for node in found.nodes] == [FILES] * len(ranks)
    assert [[file.name for file in node.found.bad] for node in found.nodes] == [[]] * last + [bad]
    assert found.as_dict()["nodes"][last]["destination"] == str(tmp_path / f"node{last}")
    assert f"node{last} " in found.table()


def test_what_landed_without_a_checksum_is_said(source: Path, tmp_path: Path) -> None:
    stage_all([1], StageOptions(source, str(tmp_path / "{node}"), verify="none"))
    found = verify_all([1], tmp_path)
    assert found.is_good
    assert found.total.unchecked == FILES
    assert f"{FILES} files landed without a checksum, and were compared by size" in found.table()


def test_a_staging_that_did_not_end_is_not_good(source: Path, tmp_path: Path) -> None:
    stage_all([1], StageOptions(source, str(tmp_path / "{node}")))
    lines = [line for line in journal(tmp_path / "node0") if line.get("event") != "end"]
    (tmp_path / "node0/.staging/journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = verify_all([1], tmp_path)
    assert not found.is_good
    assert "did not come to its end; stage again for the rest" in found.table()


def test_verify_reread_counts_the_bad_files_of_all_ranks(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), verify="reread")
    stage_all([3], options)
    first, *_ = sorted(contents(tmp_path / "node0"))
    for name in contents(tmp_path / "node0"):
        if (tmp_path / "node0" / name).stat().st_size:
            flip(tmp_path / "node0" / name)
    with pytest.raises(InputError, match=rf"{first}: has CRC32C .*, and {FILES - 1} more; .* --repair"):
        stage_all([3], options)


# -- to repair --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_just_the_bad_files_are_brought_again(source: Path, tmp_path: Path, path: Any) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), path=path, piece_bytes=4000, repair=True)
    stage_all([2, 1], options)
    bad = spoil(tmp_path / "node1")
    report = stage_all([2, 1], options)
    assert contents(tmp_path / "node0") == contents(tmp_path / "node1") == contents(source)
    assert report.totals.files_landed == 3
    assert report.totals.bytes_read == read_of(source, bad)
    assert [(file["node"], file["name"]) for file in report.as_dict()["repaired"]] == [("node1", name) for name in bad]
    assert "3 were bad and are mended" in report.sentence()
    assert verify_all([2, 1], tmp_path).is_good
    assert stage_all([2, 1], options).totals.files_landed == 0


@pytest.mark.parametrize("how", [{"repair": True}, {"verify": "reread"}])
def test_files_that_have_no_checksum_are_told(
    source: Path, tmp_path: Path, how: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), verify="none")
    stage_all([2, 1], options)
    flip(tmp_path / "node0/train/00001.bin")
    said = f"{2 * FILES} files landed without a checksum, and were compared by size alone\n"
    run_ranks([2, 1], lambda world: stage(replace(options, **how), world))
    assert capsys.readouterr().err.count(said) == 1
    make_tree(source, 1, first=100)  # which lands with a checksum
    stage_all([2, 1], replace(options, verify="transfer"))
    run_ranks([2, 1], lambda world: stage(replace(options, **how), world))
    assert capsys.readouterr().err.count(said) == 1


def test_a_quiet_repair_prints_nothing(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), repair=True)
    stage_all([1], options)
    flip(tmp_path / "node0/train/00001.bin")
    stage_all([1], options)
    assert capfd.readouterr() == ("", "")


def test_without_it_a_flipped_bit_stays(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"))
    stage_all([1], options)
    flip(tmp_path / "node0/train/00001.bin")
    assert stage_all([1], options).totals.files_landed == 0
    assert not verify_all([1], tmp_path).is_good


def test_all_files_of_an_archive_come_where_one_is_bad(tmp_path: Path) -> None:
    pack(tmp_path / "source/a.tar", {"one": b"1", "two": b"22"}, 1)
    pack(tmp_path / "source/b.tar", {"three": b"333"}, 1)
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), transform="untar", repair=True)
    stage_all([1], options)
    before = contents(tmp_path / "node0")
    flip(tmp_path / "node0" / next(name for name in before if name.endswith("two")))
    report = stage_all([1], options)
    assert contents(tmp_path / "node0") == before
    assert report.totals.files_read == 1
    assert report.totals.files_landed == 2


def test_a_node_that_has_lost_everything_gets_it_again(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), repair=True)
    stage_all([1, 1], options)
    shutil.rmtree(tmp_path / "node1")
    assert stage_all([1, 1], options).totals.files_landed == FILES
    assert contents(tmp_path / "node1") == contents(source)


# -- to follow --------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("why", ["gone", "left out"])
def test_a_bad_file_that_does_not_come_again_is_not_said_to_be_mended(source: Path, tmp_path: Path, why: str) -> None:
    options = StageOptions(source, str(tmp_path / "out"))
    stage(options, Alone(), quiet=True)
    coming, staying = sorted(name for name in contents(source) if name.startswith("train"))[:2]
    before = contents(source)
    for name in (coming, staying):
        flip(tmp_path / "out" / name)
    repairing = replace(options, update=True, repair=True)
    if why == "gone":
        (source / staying).unlink()
    else:
        repairing = replace(repairing, exclude=(staying,))
    with pytest.raises(
        DataError,
        match=rf"out: holds bad files that this staging does not bring: {staying}: .*; remove .*--drop-vanished",
    ):
        stage(repairing, Alone(), quiet=True)
    assert (tmp_path / "out" / coming).read_bytes() == before[coming]
    assert [file.name for file in verify(tmp_path / "out", 1, Alone(), quiet=True).total.bad] == [staying]
    if why == "gone":
        report = stage(replace(repairing, drop_vanished=True), Alone(), quiet=True)
        assert (report.totals.files_dropped, report.repaired) == (1, [])
    else:
        report = stage(replace(repairing, exclude=()), Alone(), quiet=True)
        assert [file["name"] for file in report.repaired] == [staying]
    assert verify(tmp_path / "out", 1, Alone(), quiet=True).is_good


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


def pack(path: Path, members: dict[str, bytes], time_s: int) -> None:
    """Write an archive whose modification time is ``time_s``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    os.utime(path, (time_s, time_s))


# -- in the order in which a crash of the node finds it ---------------------------------------------------------------


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


@pytest.mark.parametrize("repair", [False, True])
def test_what_comes_again_is_doubted_before(
    source: Path, tmp_path: Path, repair: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file has the size and time of the old one before the disk has its bytes; the old line would vouch."""
    options = StageOptions(source, str(tmp_path / "out"), repair=repair)
    stage(options, Alone(), quiet=True)
    name, changed = "train/00001.bin", "train/00002.bin"
    flip(tmp_path / "out" / name) if repair else (tmp_path / "out" / name).unlink()
    os.utime(source / changed, ns=(5, 5))
    trusted: list[set[str]] = []
    move = Staging.move

    def moving(staging: Staging, landings: Landings) -> None:
        records = load_records(tmp_path / "out")
        trusted.append({name for name in records.position if not records.is_doubted(name)})
        move(staging, landings)

    monkeypatch.setattr(Staging, "move", moving)
    assert stage(options, Alone(), quiet=True).totals.files_landed == 2
    assert trusted == [set(contents(source)) - {name, changed}]
    assert set(load_records(tmp_path / "out").position) == set(contents(source))
    assert verify(tmp_path / "out", 1, Alone()).is_good
