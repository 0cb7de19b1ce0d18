"""Bad files are all listed, and just these brought again."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from staging.errors import DataError, InputError
from staging.ledger.manifest import load_records, manifest_path
from staging.ledger.verify import BadFile
from staging.options import StageOptions
from staging.prepare import not_brought
from staging.present import brought_again
from staging.ranks.world import Alone
from staging.stage import Staging, stage
from staging.timeline import Landings
from staging.verification import verify
from tests.staging.made_sources import pack
from tests.staging.processes import contents, journal, make_tree
from tests.staging.spoiled import flip, read_of, spoil
from tests.staging.staged_by_threads import stage_all, verify_all
from tests.staging.thread_world import run_ranks

FILES = 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Some files."""
    make_tree(tmp_path / "source", FILES)
    return tmp_path / "source"


# -- to find ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [[3], [2, 1]])
def test_all_ranks_look_and_each_file_once(source: Path, tmp_path: Path, ranks: list[int]) -> None:
    stage_all(ranks, StageOptions(source, str(tmp_path / "{node}")))
    last = len(ranks) - 1
    bad = spoil(tmp_path / f"node{last}")
    found = verify_all(ranks, tmp_path)
    assert [node.verified.files for node in found.nodes] == [FILES] * len(ranks)
    assert [[file.name for file in node.verified.bad] for node in found.nodes] == [[]] * last + [bad]
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


@pytest.mark.parametrize("placement", ["replicate", "shard"])
def test_a_repair_brings_nothing_but_the_files_that_a_training_named(
    source: Path, tmp_path: Path, placement: Any
) -> None:
    options = StageOptions(source, str(tmp_path / "{node}"), placement)
    names = sorted(contents(source))[: FILES // 2]
    run_ranks([2, 1], lambda world: stage(options, world, names, quiet=True))
    nodes = [tmp_path / "node0", tmp_path / "node1"]
    before = [contents(node) for node in nodes]
    bad = spoil(nodes[1])
    for _ in range(2):  # a repair keeps to them, too, for the next one
        report = stage_all([2, 1], replace(options, repair=True))
        assert [contents(node) for node in nodes] == before
    assert report.totals.files_landed == 0
    assert set(bad) <= set(before[1])
    again = run_ranks([2, 1], lambda world: stage(options, world, names, quiet=True))[0]
    assert again.totals.files_landed == 0
    if placement == "replicate":  # the other node's manifest names them
        shutil.rmtree(nodes[0])
        assert stage_all([2, 1], replace(options, repair=True)).totals.files_landed == len(before[0])
        assert contents(nodes[0]) == before[0]


def test_a_repair_reads_no_file_outside_the_source_that_a_forged_manifest_names(source: Path, tmp_path: Path) -> None:
    options = StageOptions(source, str(tmp_path / "out"))
    stage(options, Alone(), ["train/00001.bin"], quiet=True)
    (tmp_path / "secret").write_text("outside")
    forged = {"name": "x", "size": 7, "crc32c": 0, "source": "../secret", "mtime_ns": 0}
    with manifest_path(tmp_path / "out").open("a") as file:
        file.write(json.dumps(forged) + "\n")
    with pytest.raises(DataError, match="holds x, which this staging would not put there"):
        stage(replace(options, repair=True), Alone(), quiet=True)
    assert not (tmp_path / "out/x").exists()


# -- in the order in which a crash of the node finds it ---------------------------------------------------------------


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


@pytest.mark.parametrize("drop", [False, True])
def test_a_bad_member_that_its_archive_has_lost_is_not_said_to_be_mended(tmp_path: Path, drop: bool) -> None:
    (tmp_path / "source").mkdir()
    pack(tmp_path / "source/a.tar", {"one": b"1" * 50, "two": b"2" * 50}, 1_600_000_000)
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"), transform="untar")
    stage(options, Alone(), quiet=True)
    flip(tmp_path / "out/two")
    pack(tmp_path / "source/a.tar", {"one": b"1" * 50}, 1_700_000_000)
    options = replace(options, update=True, repair=True, drop_vanished=drop)
    if drop:
        report = stage(options, Alone(), quiet=True)
        assert (report.repaired, report.totals.files_dropped) == ([], 1)
        assert verify(tmp_path / "out", 1, Alone(), quiet=True).is_good
    else:
        with pytest.raises(DataError, match="holds bad files that this staging does not bring: two: "):
            stage(options, Alone(), quiet=True)


class CountedName(str):
    """A name that counts how often it is compared or looked up."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        CountedName.looks += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        CountedName.looks += 1
        return super().__hash__()


class Named(set[str]):
    """Records of files, none of which is doubted."""

    def is_doubted(self, name: str) -> bool:
        return False


def test_what_a_repair_brings_again_takes_few_looks_at_each_bad_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are lost, and however many ranks there are."""
    bad = [("node0", BadFile(CountedName(f"{number:03}"), "is gone")) for number in range(200)]
    again = [{("node0", file.name) for _, file in bad[rank::200]} for rank in range(100)]
    monkeypatch.setattr(CountedName, "looks", 0)
    lost = not_brought(bad, again)
    assert lost == bad[100:]
    monkeypatch.setattr("staging.present.load_records", lambda _: Named(file.name for _, file in bad))
    files, gone = ([file for _, file in each] for each in (bad, lost))
    assert brought_again(tmp_path, files, gone) == (files[:100], files[100:])
    assert CountedName.looks < 10 * len(bad)
