"""A file appears complete or not at all."""

import errno
import os
from pathlib import Path

import pytest

from staging.atomic import is_temporary, make_folder, replacing, sync_folder


def test_a_reader_sees_the_old_content_until_the_new_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "set.h5"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent
        assert is_temporary(temporary.name)
    assert path.read_text() == "new"
    assert [item.name for item in tmp_path.iterdir()] == ["set.h5"]


def test_a_failure_keeps_the_old_content_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "set.h5"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["set.h5"]


def test_a_failure_before_anything_was_written_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "set.h5"):
        1 / 0  # noqa: B018


def test_two_writers_of_one_file_use_different_temporary_files(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "a") as second:
        assert first != second
        first.write_text("1")
        second.write_text("2")
    assert (tmp_path / "a").read_text() == "1"


def test_durable_writes_have_the_same_content(tmp_path: Path) -> None:
    with replacing(tmp_path / "a", durable=True) as temporary:
        temporary.write_bytes(b"abc")
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_durable_waits_for_the_data_before_the_name_and_for_the_name_before_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "a", []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        found = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((found == tmp_path, is_temporary(found.name), path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(path, durable=True) as temporary:
        temporary.write_bytes(b"abc")
    assert seen == [(False, True, False), (True, False, True)]


def test_new_folders_are_durable_from_the_first_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.add(Path(f"/proc/self/fd/{descriptor}").readlink()))
    make_folder(tmp_path / "a" / "b")
    assert seen == {tmp_path, tmp_path / "a"}
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_filesystems_that_sync_no_folders_are_left_alone_and_errors_name_the_folder(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if number == errno.EINVAL:
        sync_folder(tmp_path)
        return
    with pytest.raises(OSError, match=str(tmp_path)):
        sync_folder(tmp_path)
