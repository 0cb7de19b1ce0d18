"""Links below a destination: nothing is read, written or removed through them, by the documented command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from staging.ledger.clean import clean
from staging.ledger.destination_lock import DestinationLock, lock, lock_destination
from staging.ledger.journal import Journal
from staging.ledger.manifest import load_records
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage
from tests.staging.processes import contents


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
    """Put there while nothing was staged yet, into a destination as a probe leaves it."""
    destination = tmp_path / "to"
    (destination / ".staging").mkdir(parents=True)
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
