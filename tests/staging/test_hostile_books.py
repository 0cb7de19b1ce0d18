"""Books of a destination as somebody, or a damaged disk, may leave them: bad input or skipped, never a traceback."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from staging.__main__ import main
from staging.cli import LOST
from staging.errors import InputError
from staging.ledger import jsonl
from staging.ledger.manifest import manifest_path
from staging.options import StageOptions
from staging.prepare import pieces_of
from staging.present import is_gone
from tests.staging.test_stage import stage_all

HEADER = {"schema": 1, "what": "hpcbench staging manifest", "identity": {}}
FILE = {"name": "a", "size": 3, "crc32c": 467447939, "source": "a", "mtime_ns": 0}


def run(*words: object) -> SimpleNamespace:
    """``staging``, in this process: a traceback would be an exception here."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["staging", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        code = main()
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("hi\n")
    return tmp_path / "source"


@pytest.fixture
def staged(source: Path, tmp_path: Path) -> Path:
    """A destination with one staged file."""
    assert run(source, tmp_path / "to").returncode == 0
    return tmp_path / "to"


def line(**changes: object) -> str:
    return json.dumps(FILE | changes)


ADDED = {
    "brackets": "[" * 100_000, "braces": '{"a":' * 100_000, "surrogate": line(name="\ud800x"),
    "null": line(name="a\0b"), "long name": line(name="b" * 5000), "long path": line(name="b/" * 5000 + "b"),
    "fraction": line(size=3.5), "infinite": line(size=float("inf")), "none": line(size=float("nan")),
    "digits": f'{{"name": "b", "size": {"9" * 5000}}}', "negative": line(name="b", size=-1), "number": line(name=7),
    "list": line(source=["a"]), "removed": '{"name": ["a"], "removed": true}',
    "bytes": b"\xff\xfe\x80".decode("latin-1"),
}  # fmt: skip
"""What is behind the lines of a whole manifest."""
HEADS = {
    "list": [1, 2], "schema": {"schema": [1]}, "identity list": HEADER | {"identity": [1]},
    "identity number": HEADER | {"identity": 5}, "deep": HEADER | {"identity": {"source": {"a": {"b": [1]}}}},
}  # fmt: skip
"""What stands in the place of its header."""


def is_told(done: SimpleNamespace) -> None:
    """It came to its end, or is bad input in one line."""
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 2:
        assert done.stderr.strip().splitlines()[-1].startswith("staging: error: ")


@pytest.mark.parametrize("words", [["stage"], ["--clean"], ["--plan-only"]])
@pytest.mark.parametrize("added", ADDED)
def test_lines_that_are_none_are_skipped(added: str, words: list[str], source: Path, staged: Path) -> None:
    with (staged / ".staging/manifest.jsonl").open("ab") as manifest:
        manifest.write(b"\n" + ADDED[added].encode("utf-8", "surrogatepass"))
    with (staged / ".staging/journal.jsonl").open("ab") as journal:
        journal.write(b"\n" + ADDED[added].encode("utf-8", "surrogatepass"))
    done = run("--clean", staged) if words == ["--clean"] else run(source, staged, *words[1:])
    is_told(done)


def test_names_that_no_terminal_shows_are_told_by_their_escapes(staged: Path) -> None:
    with (staged / ".staging/manifest.jsonl").open("a") as manifest:
        manifest.writelines("\n" + line(name=name) for name in ("b\ud800", "c\x1b[2J", "d" * 3000))
    done = run("--verify-only", staged)
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert "b\\ud800" in done.stdout
    assert "c\\x1b[2J" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 2100


@pytest.mark.parametrize("head", HEADS)
def test_a_header_that_is_none_is_told(head: str, source: Path, staged: Path) -> None:
    manifest = staged / ".staging/manifest.jsonl"
    rest = manifest.read_text().partition("\n")[2]
    manifest.write_text(f"{json.dumps(HEADS[head])}\n{rest}")
    again = run(source, staged)
    is_told(again)
    assert again.returncode == 2, "another staging, or none that can be told"
    is_told(run("--clean", staged))


def test_what_a_manifest_without_header_names_can_be_removed(source: Path, staged: Path) -> None:
    manifest = staged / ".staging/manifest.jsonl"
    manifest.write_text(manifest.read_text().partition("\n")[2])
    for done in (run(source, staged), run("--verify-only", staged)):
        is_told(done)
        assert done.returncode == 2
        assert f"remove what it names with `hpcbench stage --clean {staged}`, and stage again" in done.stderr
    cleaned = run("--clean", staged)
    assert (cleaned.returncode, cleaned.stdout) == (0, f"{staged}: removed 1 file, 3 B\n")
    assert list(staged.iterdir()) == []
    assert run(source, staged).returncode == 0


def lose(manifest: Path, how: str) -> None:
    """Empty a manifest, fill it with what is no line, or remove it."""
    manifest.unlink()
    if how != "removed":
        manifest.write_bytes({"empty": b"", "zeros": bytes(500), "text": b"no line\n" * 9}[how])


@pytest.mark.parametrize("how", ["empty", "zeros", "text", "removed"])
def test_of_a_lost_manifest_nothing_is_removed_and_all_is_named(how: str, source: Path, staged: Path) -> None:
    manifest = staged / ".staging/manifest.jsonl"
    lose(manifest, how)
    (staged / "mine").write_text("notes")
    for _ in range(2):
        done = run("--clean", staged)
        assert (done.returncode, done.stdout) == (2, f"{staged}: removed 0 files, 0 B\n")
        assert done.stderr.splitlines() == [
            "left a, which the manifest does not name any more",
            "left mine, which the manifest does not name any more",
            f"{staged}: {LOST}",
        ]
        assert sorted(path.name for path in staged.iterdir()) == [".staging", "a", "mine"]
        assert (staged / ".staging/journal.jsonl").exists()
    assert run(source, staged).returncode == 0
    cleaned = run("--clean", staged)
    assert (cleaned.returncode, cleaned.stdout) == (0, f"{staged}: removed 1 file, 3 B\n")
    assert [path.name for path in staged.iterdir()] == ["mine"]


def test_of_a_lost_manifest_and_no_files_nothing_stays(staged: Path) -> None:
    lose(staged / ".staging/manifest.jsonl", "empty")
    (staged / "a").unlink()
    assert run("--clean", staged).returncode == 0
    assert list(staged.iterdir()) == []


def test_of_another_schema_nothing_is_removed(staged: Path) -> None:
    manifest = staged / ".staging/manifest.jsonl"
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 2'))
    done = run("--clean", staged)
    is_told(done)
    assert "has schema 2 where this version reads 1" in done.stderr
    assert (staged / "a").exists()


@pytest.mark.parametrize("more", [(), ("--probe",), ("--probe-first",)])
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_pieces_beyond_the_memory_are_refused(path: str, more: tuple[str, ...], source: Path, tmp_path: Path) -> None:
    done = run(source, tmp_path / "to", "--path", path, "--piece-bytes", 10**12, *more)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "of memory are left; lower --piece-bytes or --threads" in done.stderr
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_the_buffers_of_all_ranks_that_read_count(
    path: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nodes read for themselves, all ranks of the largest node do; in an exchange as many as the smallest has."""
    options = StageOptions(source, str(tmp_path / "{node}"), path=path, piece_bytes=1 << 20)
    monkeypatch.setattr("staging.prepare.available_memory", lambda: 2 * pieces_of(options) * options.piece_bytes)
    if path == "exchange":
        stage_all([3, 1], options)
        return
    with pytest.raises(InputError, match=r"for 3 ranks of \d+ threads take .* of memory are left; lower --piece-bytes"):
        stage_all([3, 1], options)


@pytest.mark.parametrize("name", ["a\ud800", "a\0b"])
def test_an_entry_of_a_name_that_no_filesystem_has_is_gone(tmp_path: Path, name: str) -> None:
    assert is_gone(tmp_path, name)


@pytest.mark.parametrize("filler", ["", "{}", "x"])
def test_a_header_is_looked_for_among_lines_that_may_be_one(
    staged: Path, filler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands look for it several times, each time in all lines where there is none."""
    parsed = list[bytes]()
    monkeypatch.setattr(jsonl, "_parse_line", parsed.append)
    path = manifest_path(staged)
    path.write_text(f"{filler}\n" * 100_000)
    assert jsonl.find_header(path) is None
    assert parsed == []
