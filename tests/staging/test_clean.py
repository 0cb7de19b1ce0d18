"""Cleaning removes what the manifest owns and nothing else, whatever the manifest says."""

import json
import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.ledger.clean import Cleaned, clean, remove_unfinished
from staging.ledger.destination_lock import DestinationLock, lock, lock_destination, refuse_strangers
from staging.ledger.journal import Journal
from staging.ledger.jsonl import append_lines, read_header
from staging.ledger.manifest import Manifest, is_inside
from staging.present import drop
from staging.ranks.world import Alone
from staging.storage.destination_folder import DestinationFolder
from tests.staging.begun import begin


def stage(destination: Path, *names: str) -> Manifest:
    manifest = Manifest.open(destination, {})
    for name in names:
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        (destination / name).write_bytes(b"abc")
        os.utime(destination / name, ns=(0, 0))
    manifest.append([Landed(name, 3, -1, name, 0) for name in names])
    return manifest


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_all_that_was_staged_goes_and_the_folder_stays(tmp_path: Path) -> None:
    stage(tmp_path, "a", "train/b", "train/deep/c")
    (tmp_path / "train/.d.0123456789ab.part").write_bytes(b"half")
    (tmp_path / "validation/empty").mkdir(parents=True)
    assert clean(tmp_path) == Cleaned(4, 13, [])
    assert tree(tmp_path) == []


def test_what_is_not_ours_or_was_altered_is_left_and_listed(tmp_path: Path) -> None:
    stage(tmp_path, "altered", "folder/gone", "folder/good", "linked", "replaced")
    (tmp_path / "altered").write_bytes(b"abcd")
    (tmp_path / "folder/gone").unlink()
    (tmp_path / "folder/mine").write_bytes(b"abc")
    (tmp_path / "linked").unlink()
    (tmp_path / "linked").symlink_to(tmp_path / "folder/mine")
    (tmp_path / "replaced").unlink()
    (tmp_path / "replaced").mkdir()
    (tmp_path / "replaced/file").touch()
    (tmp_path / ".link.0123456789ab.part").symlink_to(tmp_path / "folder/mine")
    left = [".link.0123456789ab.part", "altered", "folder/mine", "linked", "replaced/file"]
    assert clean(tmp_path) == Cleaned(1, 3, left)
    assert tree(tmp_path) == sorted([*left, "folder", "replaced"])


def test_after_clean_left_a_file_the_folder_must_be_emptied(tmp_path: Path) -> None:
    stage(tmp_path, "altered", "good")
    refuse_strangers(tmp_path)
    (tmp_path / "altered").write_bytes(b"abcd")
    assert clean(tmp_path).left == ["altered"]
    with pytest.raises(DataError, match="is not empty and was not made by staging; empty it"):
        refuse_strangers(tmp_path)
    (tmp_path / "altered").unlink()
    refuse_strangers(tmp_path)


def test_hidden_part_files_of_others_are_left(tmp_path: Path) -> None:
    stage(tmp_path, "a")
    mine = [".notes.part", "mine/.video.mp4.part", "mine/.x.0123.part"]
    (tmp_path / "mine").mkdir()
    for name in mine:
        (tmp_path / name).write_text("mine")
    assert clean(tmp_path) == Cleaned(1, 3, mine)
    assert tree(tmp_path) == [".notes.part", "mine", *mine[1:]]


@pytest.mark.parametrize(
    "name",
    [
        "../victim",
        "{root}/victim",
        "//{root}/victim",
        "sub/../../victim",
        "out/victim",
        "self/../../victim",
        "./../victim",
    ],
)
def test_an_evil_manifest_reaches_nothing_outside(tmp_path: Path, name: str) -> None:
    destination = tmp_path / "dst"
    manifest = stage(destination, "sub/a")
    (tmp_path / "victim").write_bytes(b"abc")
    (destination / "out").symlink_to(tmp_path)
    (destination / "self").symlink_to(destination / "sub")
    evil = {"name": name.format(root=tmp_path), "size": 3, "crc32c": -1, "source": "a", "mtime_ns": 0}
    append_lines(manifest.path, [json.dumps(evil)])
    assert len(manifest.records()) == 2
    assert clean(destination) == Cleaned(1, 3, ["out", "self"])
    assert (tmp_path / "victim").read_bytes() == b"abc"


def test_a_link_to_outside_is_not_walked_into(tmp_path: Path) -> None:
    destination = tmp_path / "dst"
    stage(destination, "a")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.x.0123456789ab.part").touch()
    (tmp_path / "other/empty").mkdir()
    (destination / "out").symlink_to(tmp_path / "other")
    assert clean(destination).left == ["out"]
    assert tree(tmp_path / "other") == [".x.0123456789ab.part", "empty"]


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("a", True),
        ("a/b.c/d", True),
        ("..a/b..", True),
        ("", False),
        (".", False),
        ("..", False),
        ("a/../b", False),
        ("/a", False),
        ("//a", False),
        ("a//b", False),
        ("./a", False),
        ("a/", False),
        ("a\0b", False),
        (".staging/manifest.jsonl", False),
        ("a/.staging/manifest.jsonl", False),
        ("a/.staging", False),
        ("link/a", False),
        ("d/" * 255 + "f", True),
        ("d/" * 256 + "f", False),
        ("é" * 2047, True),
        ("é" * 2048, False),
        ("a\ud800", False),
    ],
)
def test_names_that_stay_inside(tmp_path: Path, name: str, inside: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert is_inside(tmp_path, name) is inside


def test_a_name_of_a_hundred_thousand_folders_takes_no_time(tmp_path: Path) -> None:
    """The time, and the memory of an update, grew with the square of them: a megabyte of it took days."""
    manifest = stage(tmp_path / "dst", "a")
    name = "b/" * 500_000 + "b"
    evil = {"name": name, "size": 3, "crc32c": -1, "source": "a", "mtime_ns": 0}
    append_lines(manifest.path, [json.dumps(evil)])
    assert not is_inside(tmp_path / "dst", name)
    tracemalloc.start()
    assert drop(tmp_path / "dst", list(manifest.records())) == (1, [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    assert clean(tmp_path / "dst").left == []


def test_a_folder_that_was_not_staged_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".x.0123456789ab.part").touch()
    with pytest.raises(DataError, match="has no staging manifest"):
        clean(tmp_path)
    (tmp_path / "real").mkdir()
    stage(tmp_path / "real", "a")
    (tmp_path / ".staging").symlink_to(tmp_path / "real/.staging")
    with pytest.raises(DataError, match="has no staging manifest"):
        clean(tmp_path)
    assert (tmp_path / ".x.0123456789ab.part").exists()


def test_what_only_a_probe_left_goes(tmp_path: Path) -> None:
    books = tmp_path / "dst/.staging"
    (books / "probe.0a1b2c3d").mkdir(parents=True)
    (books / "probe.0a1b2c3d/0.0.large").write_bytes(b"abc")
    (books / "probe.json").write_text("{}")
    (books / "lock").touch()
    (tmp_path / "dst/.x.0123456789ab.part").touch()
    with lock(tmp_path / "dst", "n1", "job"), pytest.raises(DataError, match="another staging holds it"):
        clean(tmp_path / "dst")
    assert clean(tmp_path / "dst") == Cleaned()
    assert tree(tmp_path / "dst") == [".x.0123456789ab.part"]


def test_books_that_staging_did_not_write_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".staging").mkdir()
    (tmp_path / ".staging/notes").touch()
    with pytest.raises(DataError, match="has no staging manifest"):
        clean(tmp_path)
    assert tree(tmp_path) == [".staging", ".staging/notes"]


def test_books_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".staging").mkdir()

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("staging.ledger.clean.Path.iterdir", refuse)
    with pytest.raises(DataError) as error:
        clean(tmp_path)
    assert str(error.value) == f"{tmp_path}/.staging: cannot be listed (Permission denied); check its permissions"


def test_a_staging_that_is_going_on_is_not_cleaned_away(tmp_path: Path) -> None:
    stage(tmp_path, "a")
    with lock(tmp_path, "n1", "job"), pytest.raises(DataError, match="another staging holds it"):
        clean(tmp_path)
    assert (tmp_path / "a").exists()
    clean(tmp_path)


def test_a_file_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(tmp_path, "a")

    def refuse(folder: DestinationFolder, name: str) -> None:
        raise PermissionError(1, "Operation not permitted", name)

    monkeypatch.setattr(DestinationFolder, "unlink", refuse)
    with pytest.raises(DataError) as error:
        clean(tmp_path)
    assert str(error.value) == f"{tmp_path}/a: cannot be removed (Operation not permitted); check its permissions"


def test_the_books_go_once_the_disk_has_forgotten_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a crash could leave files without books, which nothing would remove any more."""
    stage(tmp_path, "a", "train/b")
    (tmp_path / ".staging/arriving").mkdir()
    (tmp_path / ".staging/arriving/c").touch()
    at_sync: list[list[str]] = []
    monkeypatch.setattr("staging.ledger.clean.sync_filesystem", lambda *_: at_sync.append(tree(tmp_path)))
    clean(tmp_path)
    assert at_sync == [[".staging", ".staging/lock", ".staging/manifest.jsonl"]]
    assert tree(tmp_path) == []


@pytest.mark.parametrize("kept", ["mine", None])
@pytest.mark.parametrize(
    ("last", "there"), [("manifest.jsonl", ["lock", "manifest.jsonl"]), ("lock", ["lock"]), (".staging", [])]
)
def test_killed_as_the_books_go_the_same_call_goes_on(
    tmp_path: Path, kept: str | None, last: str, there: list[str]
) -> None:
    """The journal goes first: with it, and without a manifest, what was left would seem to be staged."""
    stage(tmp_path, "a")
    start = begin(Journal(tmp_path), "job", Alone().place, "")
    Journal(tmp_path).end(start)
    if kept:
        (tmp_path / kept).touch()
    at_sync: list[list[str]] = []
    unlink, rmdir = os.unlink, os.rmdir

    def killed(call: Callable[..., None], name: str, *, dir_fd: int) -> None:
        if name == last:
            raise KeyboardInterrupt
        call(name, dir_fd=dir_fd)

    def listed(books: int) -> None:
        at_sync.append(sorted(os.listdir(books)))

    with (
        patch("staging.ledger.clean.sync_descriptor", listed),
        patch("os.unlink", partial(killed, unlink)),
        patch("os.rmdir", partial(killed, rmdir)),
        pytest.raises(KeyboardInterrupt),
    ):
        clean(tmp_path)
    assert at_sync == [["lock", "manifest.jsonl"]]
    assert tree(tmp_path / ".staging") == there
    clean(tmp_path)
    assert tree(tmp_path) == ([kept] if kept else [])


def test_a_staging_that_begins_as_the_books_go_keeps_its_own(tmp_path: Path) -> None:
    stage(tmp_path, "a")
    unlink, began = os.unlink, list[DestinationLock]()

    def begins(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        if name == "lock":
            began.append(lock_destination(tmp_path, Path("/absent"), Alone().place, "next"))
            stage(tmp_path, "b")

    with patch("os.unlink", begins):
        assert clean(tmp_path) == Cleaned(1, 3)
    began[0].release()
    assert read_header(tmp_path / ".staging/manifest.jsonl")["identity"] == {}
    assert clean(tmp_path) == Cleaned(1, 3)
    assert tree(tmp_path) == []


def test_what_others_put_among_the_books_is_left(tmp_path: Path) -> None:
    stage(tmp_path, "a")
    (tmp_path / ".staging/mine").mkdir()
    (tmp_path / ".staging/mine/notes").touch()
    (tmp_path / ".staging/probe.0a1b2c3d/deep").mkdir(parents=True)
    (tmp_path / ".staging/probe.0a1b2c3d/deep/0.0.large").touch()
    assert clean(tmp_path) == Cleaned(1, 3, [".staging/mine"])
    assert tree(tmp_path) == [".staging", ".staging/mine", ".staging/mine/notes"]


@pytest.mark.slow
def test_folders_of_any_depth_are_looked_through(tmp_path: Path) -> None:
    stage(tmp_path, "a")
    below = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=below)
        above, below = below, os.open("d", os.O_RDONLY, dir_fd=below)
        os.close(above)
    os.close(os.open(".f.0123456789ab.part", os.O_CREAT | os.O_WRONLY, dir_fd=below))
    os.close(below)
    assert remove_unfinished(tmp_path) == 1
    assert clean(tmp_path) == Cleaned(1, 3)
    assert tree(tmp_path) == []
