"""What is no file in the place of one: nothing waits for it, and nothing is taken for what was not named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.source.listing import INDEX_NAME
from staging.stage import stage

LIMIT_S = 60
BOOKS = ("manifest.jsonl", "journal.jsonl", "lock")


def run(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``python -m staging``, which must come to an end."""
    command = [sys.executable, "-m", "staging", *map(str, words)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_S, cwd=cwd, env=environ
    )  # fmt: skip


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    """To a book as it was, so that reading through it would find nothing wrong."""
    path.symlink_to(path.with_name(f"{path.name}.real"))


def device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a device")
    os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero, which never ends


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """The index of three files, one of which then goes."""
    source = tmp_path / "source"
    (source / "train").mkdir(parents=True)
    for number in range(3):
        (source / "train" / f"{number}.npy").write_bytes(bytes(1000))
    done = subprocess.run(
        [sys.executable, "-m", "hpcbench", "data", "index", str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (source / "train" / "1.npy").unlink()
    return source


@pytest.mark.slow
@pytest.mark.parametrize("make", [pipe, device])
@pytest.mark.parametrize(
    "words", [[], ["--cold"], ["--path", "direct"], pytest.param(["--probe"], marks=pytest.mark.slow)]
)
def test_a_source_entry_that_turns_into_something_else_does_not_hang(
    indexed: Path, make: Callable[[Path], None], words: list[str], tmp_path: Path
) -> None:
    """A staging ends, since it is to bring all; a probe takes other files."""
    make(indexed / "train" / "1.npy")
    done = run(indexed, tmp_path / "to", "--index", indexed / INDEX_NAME, *words)
    assert done.returncode == (0 if "--probe" in words else 2), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "to" / "train" / "1.npy").exists()


@pytest.mark.slow
@pytest.mark.parametrize("make", [pipe, device])
def test_a_probe_needs_a_file(indexed: Path, make: Callable[[Path], None], tmp_path: Path) -> None:
    for number in range(3):
        (indexed / "train" / f"{number}.npy").unlink(missing_ok=True)
        make(indexed / "train" / f"{number}.npy")
    done = run(indexed, tmp_path / "to", "--index", indexed / INDEX_NAME, "--probe")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        f"{indexed} holds no file to probe with; check the folder, include and exclude"
    )


@pytest.mark.parametrize("words", [["", "TO"], ["--clean", ""]])
def test_an_empty_source_or_folder_to_clean_is_refused(words: list[str], tmp_path: Path) -> None:
    """As ``stage "$UNSET" TO`` has it, which is not the current folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.txt").write_text("mine")
    done = run(*(str(tmp_path / "to") if word == "TO" else word for word in words), cwd=tmp_path / "here")
    assert done.returncode == 2
    assert "is empty: perhaps a variable that is not set; write . for the current folder" in done.stderr
    assert not (tmp_path / "to").exists()
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["mine.txt"]
    shutil.rmtree(tmp_path / "here")


@pytest.mark.parametrize("book", BOOKS)
@pytest.mark.parametrize(
    ("make", "is_what"),
    [
        (pipe, "a pipe"), pytest.param(device, "a character device", marks=pytest.mark.slow), (link, "a link"),
        pytest.param(Path.mkdir, "a folder", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_book_that_turns_into_something_else_is_refused(
    make: Callable[[Path], None], is_what: str, book: str, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.npy").write_bytes(bytes(1000))
    destination = tmp_path / "to"
    stage(StageOptions(tmp_path / "source", str(destination)), Alone(), quiet=True)
    path = destination / ".staging" / book
    path.rename(path.with_name(f"{book}.real"))
    make(path)
    staged, verified, cleaned = (
        run(*words) for words in ([tmp_path / "source", destination], ["--verify-only", destination],
                                  ["--clean", destination])
    )  # fmt: skip
    is_read_by = {"manifest.jsonl": (staged, verified, cleaned), "journal.jsonl": (staged, verified),
                  "lock": (staged, cleaned)}[book]  # fmt: skip
    for done in is_read_by:
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.endswith(f"{path}: is {is_what}, not a file; remove it\n")
    for done in (done for done in (staged, verified, cleaned) if done not in is_read_by):
        assert done.returncode == 0, done.stderr
