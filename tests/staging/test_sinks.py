"""Files that land: content, checksum, time and name agree with what came; a failure leaves nothing behind."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.atomic import is_temporary
from staging.errors import DataError
from staging.landing.file_sink import FileSinkMaker, refuse_outside
from staging.landing.sinks import Landed
from staging.source.listing import UNKNOWN
from tests.staging.opened import opened

TIME = 1_500_000_000_123_456_789
CONTENT = bytes(range(256)) * 5


def pieces(data: bytes, size: int) -> list[memoryview]:
    return [memoryview(data)[start : start + size] for start in range(0, len(data), size)]


def listed(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


Land = Callable[[Path, str], object]


def land_whole(destination: Path, name: str) -> object:
    """In one call."""
    return FileSinkMaker().write_whole(opened(destination), name, memoryview(CONTENT), TIME)


def land_by_sink(destination: Path, name: str) -> object:
    """Through a sink."""
    sink = FileSinkMaker()(opened(destination), name, len(CONTENT), TIME)
    sink.write(memoryview(CONTENT))
    return sink.close()


either_way = pytest.mark.parametrize("land", [land_whole, land_by_sink])


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=3000), st.integers(1, 1000))
def test_what_landed_is_what_came(tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int) -> None:
    folder = tmp_path_factory.mktemp("to")
    sink = FileSinkMaker()(opened(folder), "a/b/c.bin", len(data), TIME)
    for piece in pieces(data, size):
        sink.write(piece)
    assert sink.close() == [Landed("a/b/c.bin", len(data), crc32c(data), "a/b/c.bin", TIME)]
    assert (folder / "a/b/c.bin").read_bytes() == data
    assert (folder / "a/b/c.bin").stat().st_mtime_ns == TIME
    assert [path.name for path in (folder / "a/b").iterdir()] == ["c.bin"]


def test_the_name_is_not_there_before_close_and_the_temporary_one_is_known_as_such(tmp_path: Path) -> None:
    sink = FileSinkMaker()(opened(tmp_path), "a", len(CONTENT), TIME)
    sink.write(memoryview(CONTENT))
    (name,) = listed(tmp_path)
    assert is_temporary(name)
    assert name.startswith(".a.")
    sink.close()
    assert listed(tmp_path) == ["a"]


def test_an_older_file_of_the_name_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old" * 1000)
    landed = FileSinkMaker().write_whole(opened(tmp_path), "a", memoryview(b"new"), TIME)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert landed.checksum == crc32c(b"new")


def test_without_checksums_there_is_none(tmp_path: Path) -> None:
    assert (
        FileSinkMaker(checksum=False).write_whole(opened(tmp_path), "a", memoryview(CONTENT), TIME).checksum == UNKNOWN
    )


@either_way
@pytest.mark.parametrize("name", ["n" * 255, "名" * 85])
def test_the_longest_names_of_a_filesystem(tmp_path: Path, name: str, land: Land) -> None:
    land(tmp_path, name)
    assert listed(tmp_path) == [name]


def test_a_folder_that_vanished_is_made_again(tmp_path: Path) -> None:
    make = FileSinkMaker()
    make.write_whole(opened(tmp_path), "a/b", memoryview(CONTENT), TIME)
    (tmp_path / "a/b").unlink()
    (tmp_path / "a").rmdir()
    make.write_whole(opened(tmp_path), "a/c", memoryview(CONTENT), TIME)
    assert (tmp_path / "a/c").read_bytes() == CONTENT


def test_many_threads_land_one_name_and_leave_one_whole_file(tmp_path: Path) -> None:
    make = FileSinkMaker()
    contents = [bytes([number]) * 5000 for number in range(8)]

    def land(data: bytes) -> None:
        for _ in range(20):
            make.write_whole(opened(tmp_path), "a", memoryview(data), TIME)

    threads = [threading.Thread(target=land, args=[data]) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_bytes() in contents
    assert listed(tmp_path) == ["a"]


@either_way
def test_a_write_that_takes_only_a_part_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, land: Land
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, place: real(descriptor, data[:7], place))
    land(tmp_path, "a")
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == CONTENT


@either_way
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, land: Land
) -> None:
    real, calls = os.pwrite, []

    def write(descriptor: int, data: memoryview, place: int) -> int:
        calls.append(len(data))
        if len(calls) == 2:
            raise OSError(code, os.strerror(code))
        return real(descriptor, data[:500], place)

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(DataError) as error:
        land(tmp_path, "set/a")
    assert str(error.value) == (
        f"{tmp_path}/set/a: cannot be written ({os.strerror(code)}); "
        "free space there, or set the destination to a larger place"
    )
    assert list((tmp_path / "set").iterdir()) == []


@either_way
def test_a_rename_onto_a_folder_is_told_and_leaves_the_folder(tmp_path: Path, land: Land) -> None:
    (tmp_path / "a/inside").mkdir(parents=True)
    with pytest.raises(DataError, match=r"a: cannot be written \(Is a directory\); check the destination and its perm"):
        land(tmp_path, "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@either_way
def test_a_file_where_a_folder_should_be(tmp_path: Path, land: Land) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(DataError, match="/a: is a link or a file where a folder is to be; links are not followed"):
        land(tmp_path, "a/b")


@either_way
@pytest.mark.parametrize("name", ["sub/f.txt", "deep/sub/f.txt"])
def test_a_link_where_a_folder_should_be_is_not_followed(tmp_path: Path, land: Land, name: str) -> None:
    """Whether it was there before, or replaces a folder that is already open."""
    victim, to = tmp_path / "victim", tmp_path / "to"
    victim.mkdir()
    (victim / "f.txt").write_text("mine")
    link = to / Path(name).parent
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(DataError, match="sub: is a link or a file where a folder is to be; links are not followed"):
        land(to, name)
    assert [path.name for path in victim.iterdir()] == ["f.txt"]
    assert (victim / "f.txt").read_text() == "mine"


@pytest.mark.parametrize("came", [b"", CONTENT[:-1], CONTENT + b"x"])
def test_other_than_the_said_bytes(tmp_path: Path, came: bytes) -> None:
    sink = FileSinkMaker()(opened(tmp_path), "a", len(CONTENT), TIME)
    sink.write(memoryview(came))
    with pytest.raises(DataError, match=rf"a: got {len(came)} of its {len(CONTENT)} bytes; stage again"):
        sink.close()
    assert listed(tmp_path) == []


def test_of_an_unknown_size_any_number_of_bytes_is_right(tmp_path: Path) -> None:
    sink = FileSinkMaker()(opened(tmp_path), "a", UNKNOWN, TIME)
    sink.write(memoryview(CONTENT))
    assert sink.close()[0].size == len(CONTENT)


@pytest.mark.parametrize("steps", [[], ["write"], ["write", "abandon"], ["write", "close"]])
def test_abandon_after_any_call(tmp_path: Path, steps: list[str]) -> None:
    sink = FileSinkMaker()(opened(tmp_path), "a", len(CONTENT), TIME)
    calls: dict[str, Any] = {
        "write": lambda: sink.write(memoryview(CONTENT)), "close": sink.close, "abandon": sink.abandon
    }  # fmt: skip
    for step in steps:
        calls[step]()
    sink.abandon()
    assert listed(tmp_path) == (["a"] if "close" in steps else [])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("/etc/passwd", "is absolute"),
        ("../a", "leads upwards"),
        ("a/../../b", "leads upwards"),
        ("a/..", "leads upwards"),
        ("a//b", "has an empty part"),
        ("", "has an empty part"),
        ("a/", "has an empty part"),
        ("./a", "has an empty part"),
        (".a.0123456789ab.part", "is the name of an unfinished file"),
        ("set/.a.0123456789ab.part", "is the name of an unfinished file"),
        (".staging/manifest.jsonl", "lies in staging's own bookkeeping"),
        (".staging", "lies in staging's own bookkeeping"),
        ("a/b/.staging/manifest.jsonl", "lies in staging's own bookkeeping"),
        ("a/.staging", "lies in staging's own bookkeeping"),
    ],
)
def test_names_that_would_land_elsewhere(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(DataError) as error:
        FileSinkMaker()(opened(tmp_path / "to"), name, 0, TIME)
    assert str(error.value) == f"destination: the file name '{name}' {problem}; rename it, or leave it out"
    assert list(tmp_path.rglob("*")) == [tmp_path / "to"]


@pytest.mark.parametrize("name", ["a..b", "..a", ".hidden", "a/b..", "x.part", "a/...", "..."])
def test_names_that_only_look_like_these(name: str) -> None:
    refuse_outside(name)


def test_a_file_takes_its_size() -> None:
    assert FileSinkMaker().estimate("a/b", 4097) == [("a/b", 4097)]
