"""The folder of a study while somebody works in it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcbench.study.folder import StudyFolder, begun, held
from staging.errors import Aborted, InputError


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "study")


def fail(
    folder: StudyFolder, act: Callable[[], object], error: Exception, report: Callable[[], object] = lambda: None
) -> None:
    """Work in the folder until ``error``, after ``act``."""
    with held(folder), begun(folder, {"mode": "any"}, report):
        act()
        raise error


def test_a_full_disk_is_one_line(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\); free some space there"):
        fail(folder, lambda: None, RuntimeError("never reached"))


def test_a_folder_that_is_removed_meanwhile_hides_no_error(folder: StudyFolder) -> None:
    with pytest.raises(InputError, match="the first run"):
        fail(folder, lambda: shutil.rmtree(folder.path), InputError("the first run"))
    assert not folder.path.exists()


def test_a_folder_that_is_removed_while_its_page_is_written_hides_no_signal(folder: StudyFolder) -> None:
    def report() -> None:
        shutil.rmtree(folder.path)
        folder.table.write_text("a table")

    with pytest.raises(Aborted, match="SIGTERM"):
        fail(folder, lambda: (folder.run("one") / "steps").mkdir(parents=True), Aborted("SIGTERM", 143), report)
    assert not folder.path.exists()


def test_runs_that_are_removed_as_they_are_looked_at(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Path.iterdir

    def gone(path: Path) -> Iterator[Path]:
        found = list(listed(path))
        for each in found:
            shutil.rmtree(each)
        return iter(found)

    def act() -> None:
        folder.run("one").mkdir(parents=True)
        monkeypatch.setattr(Path, "iterdir", gone)

    with pytest.raises(InputError, match="the first run"):
        fail(folder, act, InputError("the first run"))


def test_a_folder_in_which_nothing_began_is_removed(folder: StudyFolder) -> None:
    with pytest.raises(InputError, match="the first run"):
        fail(folder, lambda: None, InputError("the first run"))
    assert not folder.path.exists()


def test_a_folder_that_existed_before_is_emptied_and_not_removed(folder: StudyFolder, tmp_path: Path) -> None:
    """It may be a link to a larger disk, or a mount point."""
    disk = tmp_path / "disk"
    disk.mkdir()
    folder.path.symlink_to(disk)
    with pytest.raises(InputError, match="the first run"):
        fail(folder, folder.jobs.mkdir, InputError("the first run"))
    assert folder.path.readlink() == disk
    assert not list(disk.iterdir())


def test_linked_runs_of_a_study_that_did_not_begin_stay_linked(folder: StudyFolder, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    folder.path.mkdir()
    folder.runs.symlink_to(disk)
    with pytest.raises(InputError, match="the first run"):
        fail(folder, lambda: None, InputError("the first run"))
    assert list(folder.path.iterdir()) == [folder.runs]
    assert folder.runs.is_dir()


def test_of_a_linked_run_only_the_link_is_removed(folder: StudyFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mllog.txt").touch()
    folder.runs.mkdir(parents=True)
    folder.run("one").symlink_to(elsewhere)
    folder.clear("one")
    assert not folder.run("one").is_symlink()
    assert (elsewhere / "mllog.txt").exists()


def test_a_study_that_cannot_be_written_is_to_be_continued_in_a_copy(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(InputError, match=r"cannot be written \(Permission denied\); give another --study-dir"):
        fail(folder, lambda: None, RuntimeError("never reached"))
    monkeypatch.undo()
    folder.definition.touch()
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(InputError, match="make it writable, or continue in a copy"):
        fail(folder, lambda: None, RuntimeError("never reached"))
