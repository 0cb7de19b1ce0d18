"""`--clean` after a staging that did not come to its end: files that the manifest lacks, and their books, stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from staging.__main__ import main
from staging.cli import UNFINISHED
from staging.ledger.journal import Journal
from staging.ledger.manifest import manifest_path
from staging.ranks.world import Alone
from tests.staging.begun import begin
from tests.staging.processes import ENVIRON, PROGRAMS, contents


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A destination as a staging leaves it that is killed before its first files are named."""
    (tmp_path / "source").mkdir()
    for name in ("a", "b"):
        (tmp_path / "source" / name).write_text(name)
    staged = tmp_path / "to"
    assert ended(tmp_path / "source", staged) == 0
    manifest = manifest_path(staged)
    manifest.write_text(manifest.read_text().partition("\n")[0] + "\n")
    begin(Journal(staged), "killed", Alone().place)
    return staged


def ended(*words: object) -> int:
    """The exit code of ``staging``, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["staging", *map(str, words)])
        return main()


def test_files_that_are_not_named_yet_keep_the_books(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for _ in range(2):
        assert ended("--clean", killed) == 2
        assert capsys.readouterr().err.splitlines() == [
            "left a, which is not as staging put it there",
            "left b, which is not as staging put it there",
            f"{killed}: {UNFINISHED}",
        ]
    assert ended(killed.parent / "source", killed) == 0
    assert ended("--clean", killed) == 0
    assert list(killed.iterdir()) == []


def test_once_they_are_removed_the_books_go_too(killed: Path) -> None:
    for name in ("a", "b"):
        (killed / name).unlink()
    assert ended("--clean", killed) == 0
    assert list(killed.iterdir()) == []


def test_a_file_that_came_anew_and_is_not_named_anew_keeps_the_books(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest names it as it was before, and doubts that."""
    source, staged = tmp_path / "source", tmp_path / "to"
    source.mkdir()
    for text in ("old", "newer"):
        for name in ("a", "b"):
            (source / name).write_text(text)
        if text == "old":
            assert ended(source, staged) == 0
    command = [sys.executable, str(PROGRAMS / "killed_at_rename.py"), str(source), str(staged), "--threads", "1"]
    killed = subprocess.run(command, env=ENVIRON | {"KILLED_AT": "2"}, capture_output=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (came,) = (name for name in ("a", "b") if (staged / name).read_text() == "newer")
    capsys.readouterr()
    assert ended("--clean", staged) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"left {came}, which is not as staging put it there", f"{staged}: {UNFINISHED}",
    ]  # fmt: skip
    assert contents(staged) == {came: b"newer"}
    assert ended(source, staged) == 0
    assert ended("--clean", staged) == 0
    assert list(staged.iterdir()) == []
