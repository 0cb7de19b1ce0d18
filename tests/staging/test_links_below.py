"""Links below a destination: nothing is read, written or removed through them, by the documented command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staging.ledger.clean
import staging.probing.probe
import staging.reshuffle
import staging.stage
from staging.errors import DataError, InputError
from staging.ledger.clean import clean
from staging.ledger.destination_lock import DestinationLock, lock, lock_destination
from staging.ledger.journal import Journal
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.probing.ceilings import read_ceilings
from staging.probing.probe import probe
from staging.ranks.world import Alone
from staging.reshuffle import StagedSource, reshuffle
from staging.source.listing import Listing, Names
from staging.stage import stage
from staging.storage.destination_folder import DestinationFolder
from tests.staging.processes import contents, snapshot
from tests.staging.thread_world import run_ranks


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """``python -m staging``."""
    command = [sys.executable, "-m", "staging", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files in two folders."""
    for name in ("sub/f.txt", "sub/g.txt", "other/h.txt"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(f"staged {name}")
    return tmp_path / "source"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of somebody else, with a file of the same name."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "f.txt").write_text("mine")
    return tmp_path / "victim"


def is_untouched(victim: Path) -> bool:
    return [path.name for path in victim.iterdir()] == ["f.txt"] and (victim / "f.txt").read_text() == "mine"


def test_a_link_in_the_place_of_a_folder_is_not_followed(source: Path, victim: Path, tmp_path: Path) -> None:
    """Put there while nothing was staged yet, into a destination whose first staging was killed at once."""
    destination = tmp_path / "to"
    (destination / ".staging").mkdir(parents=True)
    (destination / ".staging/manifest.jsonl").touch()
    (destination / "sub").symlink_to(victim)
    done = run(source, destination)
    assert done.returncode == 2, done.stderr
    assert f"{destination}/sub: is a link or a file where a folder is to be; links are not followed" in done.stderr
    assert "Traceback" not in done.stderr
    assert is_untouched(victim)


def test_a_folder_that_a_link_replaced_is_not_followed_on_resume(source: Path, victim: Path, tmp_path: Path) -> None:
    destination = tmp_path / "to"
    assert run(source, destination).returncode == 0
    shutil.rmtree(destination / "sub")
    (destination / "sub").symlink_to(victim)
    again = run(source, destination)
    assert again.returncode == 2, again.stderr
    assert "links are not followed" in again.stderr
    assert is_untouched(victim)
    (victim / "f.txt").write_text("staged sub/f.txt")  # as large as what was staged, and of its time
    os.utime(victim / "f.txt", ns=(0, (source / "sub/f.txt").stat().st_mtime_ns))
    cleaned = run("--clean", destination)
    assert cleaned.returncode == 0, cleaned.stderr
    assert (victim / "f.txt").exists()
    assert (destination / "sub").is_symlink()


def test_a_destination_that_is_a_link_is_where_it_leads(source: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "to").symlink_to(tmp_path / "disk")
    assert run(source, tmp_path / "to").returncode == 0
    assert (tmp_path / "disk/sub/f.txt").read_text() == "staged sub/f.txt"
    assert run("--clean", tmp_path / "to").returncode == 0
    assert list((tmp_path / "disk").iterdir()) == []


def relinks(link: Path, to: Path, lock: Callable[..., DestinationLock]) -> Callable[..., DestinationLock]:
    """``lock``, and as soon as it is taken ``link`` leads elsewhere."""

    def taken(*words: Any) -> DestinationLock:
        held = lock(*words)
        link.unlink()
        link.symlink_to(to)
        return held

    return taken


def test_a_destination_that_leads_elsewhere_once_it_is_locked_is_one_place(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = [tmp_path / "disk", tmp_path / "other"]
    for disk in disks:
        disk.mkdir()
    link = tmp_path / "to"
    link.symlink_to(disks[0])
    options = StageOptions(source, str(link))
    with monkeypatch.context() as patch:
        patch.setattr("staging.stage.lock_destination", relinks(link, disks[1], lock_destination))
        stage(options, Alone(), quiet=True)
    assert list(disks[1].iterdir()) == []
    assert Journal(disks[0]).is_done()
    assert set(load_records(disks[0]).position) == set(contents(disks[0])) == set(contents(source))
    stage(options, Alone(), quiet=True)
    monkeypatch.setattr("staging.ledger.clean.lock", relinks(link, disks[0], lock))
    assert clean(link).files == len(contents(source))
    assert list(disks[1].iterdir()) == []
    assert contents(disks[0]) == contents(source)


def swaps(destination: Path, victim: Path, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, before which ``destination``, a folder, is moved away and a link to ``victim`` put in its place."""

    one = threading.Lock()

    def called(*words: Any, **named: Any) -> Any:
        with one:
            if not destination.is_symlink():
                destination.rename(f"{destination}-moved")
                destination.symlink_to(victim)
        return function(*words, **named)

    return called


@pytest.mark.parametrize("when", ["clear_up", "DestinationFolder", "PieceWriter"])
def test_a_destination_that_a_link_replaces_while_it_is_held_is_refused(
    when: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination, other = tmp_path / "to", tmp_path / "other"
    stage(StageOptions(source, str(other)), Alone(), quiet=True)
    (other / "sub/f.txt").write_text("mine")
    before = snapshot(other)
    function = getattr(staging.stage, when)
    monkeypatch.setattr(f"staging.stage.{when}", swaps(destination, other, function))
    with pytest.raises(DataError, match=f"{destination}: is a link or a file where a folder is to be"):
        stage(StageOptions(source, str(destination)), Alone(), quiet=True)
    assert snapshot(other) == before


@pytest.mark.parametrize("when", ["DestinationFolder", "is_inside", "sync_filesystem"])
def test_cleaning_removes_nothing_where_a_link_leads(
    when: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination, other = tmp_path / "to", tmp_path / "other"
    for folder in (destination, other):
        stage(StageOptions(source, str(folder)), Alone(), quiet=True)
    before = snapshot(other)
    function = getattr(staging.ledger.clean, when)
    monkeypatch.setattr(f"staging.ledger.clean.{when}", swaps(destination, other, function))
    with suppress(DataError):
        clean(destination)
    assert snapshot(other) == before
    if when != "DestinationFolder":
        assert list((tmp_path / "to-moved").iterdir()) == []


def with_arrivals(destination: Path) -> dict[str, bytes]:
    """Puts a file where a re-shuffle's arrivals wait; returns all that is there."""
    arriving = destination / ".staging/arriving"
    arriving.mkdir()
    (arriving / "of another re-shuffle").write_text("mine")
    return snapshot(destination)


def test_the_end_of_a_staging_of_shards_removes_no_arrivals_where_a_link_leads(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination, other = tmp_path / "to", tmp_path / "other"
    stage(StageOptions(source, str(other), "shard"), Alone(), quiet=True)
    before = with_arrivals(other)
    function = staging.stage.remove_strays
    monkeypatch.setattr("staging.stage.remove_strays", swaps(destination, other, function))
    with pytest.raises(DataError, match=f"{destination}: is a link or a file where a folder is to be"):
        stage(StageOptions(source, str(destination), "shard"), Alone(), quiet=True)
    assert snapshot(other) == before


@pytest.mark.parametrize("when", ["draw", "make_ready", "move", "settle", "remove"])
def test_a_reshuffle_touches_nothing_where_a_link_leads(
    when: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdefgh":
        (source / name).write_text(name)
    options = StageOptions(source, str(tmp_path / "{node}"), "shard")
    for each in (options, replace(options, destination=str(tmp_path / "other-{node}"))):
        run_ranks([1, 1], lambda world, each=each: stage(each, world, quiet=True))  # type: ignore[misc]
    other = tmp_path / "other-node0"
    before = with_arrivals(other)
    function = getattr(staging.reshuffle, when)
    monkeypatch.setattr(f"staging.reshuffle.{when}", swaps(tmp_path / "node0", other, function))
    with pytest.raises(InputError, match="is a link or a file where a folder is to be"):
        run_ranks([1, 1], lambda world: reshuffle(options, 1, world))
    assert snapshot(other) == before


def test_a_reshuffle_reads_no_file_through_a_link(source: Path, victim: Path, tmp_path: Path) -> None:
    destination = tmp_path / "to"
    stage(StageOptions(source, str(destination)), Alone(), quiet=True)
    listing = Listing(Names.of(["sub/f.txt"]), *(np.array([4], np.int64) for _ in range(3)))
    with DestinationFolder(destination) as folder:
        (destination / "sub/f.txt").unlink()
        (destination / "sub/f.txt").symlink_to(victim / "f.txt")
        with pytest.raises(DataError, match="cannot be read"):
            StagedSource(folder, listing, 0).reader().read_into(0, 0, memoryview(bytearray(4)))
    shutil.rmtree(destination / "sub")
    (destination / "sub").symlink_to(victim)
    with DestinationFolder(destination) as folder, pytest.raises(DataError, match="links are not followed"):
        StagedSource(folder, listing, 0).reader().read_into(0, 0, memoryview(bytearray(4)))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["machine_facts", "ways_at", "write_rates", "create_rate", "write_ceilings"])
def test_a_probe_writes_nothing_where_a_link_leads(
    when: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination, other = tmp_path / "to", tmp_path / "other"
    stage(StageOptions(source, str(other)), Alone(), quiet=True)
    before = snapshot(other)
    function = getattr(staging.probing.probe, when)
    monkeypatch.setattr(f"staging.probing.probe.{when}", swaps(destination, other, function))
    is_late = when in ("machine_facts", "create_rate", "write_ceilings")
    with nullcontext() if is_late else pytest.raises(DataError, match=f"{destination}/.staging/probe"):
        probe(StageOptions(source, str(destination)), Alone(), budget_s=0.5, quiet=True)
    assert snapshot(other) == before
    assert set(snapshot(tmp_path / "to-moved")) == {".staging/lock", *[".staging/probe.json"][: int(is_late)]}
    assert (read_ceilings(tmp_path / "to-moved") is not None) == is_late


@pytest.mark.parametrize("begin", ["reshuffle.reshuffle", "probing.probe.probe"])
def test_another_folder_in_the_place_of_the_one_that_was_just_locked_is_refused(
    begin: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination, other = tmp_path / "to", tmp_path / "other"
    options = StageOptions(source, str(destination), "shard")
    for each in (options, replace(options, destination=str(other))):
        stage(each, Alone(), quiet=True)
    before = with_arrivals(other)

    def lock_and_swap(*words: Any) -> DestinationLock:
        held = lock_destination(*words)
        destination.rename(tmp_path / "to-moved")
        other.rename(destination)
        return held

    monkeypatch.setattr(f"staging.{begin.rpartition('.')[0]}.lock_destination", lock_and_swap)
    with pytest.raises(DataError, match="is not the folder that was locked"):
        reshuffle(options, 1, Alone()) if begin.startswith("reshuffle") else probe(options, Alone(), quiet=True)
    assert snapshot(destination) == before


def test_another_folder_in_the_place_of_the_one_that_is_held_is_refused(tmp_path: Path) -> None:
    for name in ("to", "other"):
        (tmp_path / name / ".staging").mkdir(parents=True)
        (tmp_path / name / ".staging/lock").touch()
    with lock(tmp_path / "to", "n1", "job") as held, DestinationFolder(tmp_path / "to") as folder:
        held.refuse_other(folder)
        with DestinationFolder(tmp_path / "other") as other, pytest.raises(DataError, match="is not the folder that w"):
            held.refuse_other(other)


@pytest.mark.slow
def test_the_books_are_no_link(source: Path, victim: Path, tmp_path: Path) -> None:
    destination = tmp_path / "to"
    assert run(source, destination).returncode == 0
    for name in ("manifest.jsonl", "journal.jsonl", "lock"):
        book, before = destination / ".staging" / name, (destination / ".staging" / name).read_bytes()
        book.unlink()
        book.symlink_to(victim / "f.txt")
        done = run(source, destination)
        assert done.returncode == 2, (name, done.stderr)
        assert "Traceback" not in done.stderr
        assert is_untouched(victim)
        book.unlink()
        book.write_bytes(before)
    assert run(source, destination).returncode == 0


@pytest.mark.parametrize("member", [".staging/manifest.jsonl", "./.staging/lock", ".staging"])
def test_a_member_of_an_archive_cannot_be_a_book(member: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "forged").write_text('{"schema": 1}')
    with tarfile.open(tmp_path / "source" / "a.tar", "w") as archive:
        archive.add(tmp_path / "forged", member)
    done = run(tmp_path / "source", tmp_path / "to", "--transform", "untar")
    assert done.returncode == 2, done.stderr
    assert "lies in staging's own bookkeeping" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_was_changed_is_staged_again_and_not_removed(source: Path, tmp_path: Path) -> None:
    """It has its size, and not its time."""
    destination = tmp_path / "to"
    assert run(source, destination).returncode == 0
    (destination / "sub/f.txt").write_text("CHANGED sub/f.tx")
    assert (destination / "sub/f.txt").stat().st_size == (source / "sub/f.txt").stat().st_size
    changed = destination / "sub/g.txt"
    changed.write_text("mine of as many.")
    assert run("--clean", destination).returncode == 0
    assert changed.read_text() == "mine of as many."
    shutil.rmtree(destination)
    assert run(source, destination).returncode == 0
    changed.write_text("damaged as it is")
    assert run(source, destination).returncode == 0
    assert changed.read_text() == "staged sub/g.txt"


@pytest.mark.slow
def test_a_manifest_that_a_kill_left_empty_is_none(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "to"
    for left in ("", '{"schema": 1, "wh'):
        (destination / ".staging").mkdir(parents=True)
        (destination / ".staging/manifest.jsonl").write_text(left)
        assert run("--clean", destination).returncode == 0
        (destination / ".staging").mkdir(parents=True)
        (destination / ".staging/manifest.jsonl").write_text(left)
        assert run(source, destination).returncode == 0
        assert (destination / "sub/f.txt").read_text() == "staged sub/f.txt"
        assert run("--clean", destination).returncode == 0
        assert list(destination.iterdir()) == []
