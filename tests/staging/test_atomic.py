"""A file appears complete or not at all."""

from pathlib import Path

import pytest

from staging.atomic import is_temporary, replacing


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
