"""What of a source is left out though no pattern excludes it: said in a line, and taken where that is asked for."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from staging.source.index import read_index


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """``python -m staging``."""
    command = [sys.executable, "-m", "staging", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def files(folder: Path) -> list[str]:
    """What was staged, without the bookkeeping."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] != ".staging")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two links to folders, three hidden names, an unfinished file, and books of an earlier staging."""
    source, other = tmp_path / "source", tmp_path / "other"
    for path in (source / "a", source / ".b", source / "train/.c", source / ".d/e", other / "f", other / "deep/g",
                 source / "train/.x.0123456789ab.part", source / ".staging/manifest.jsonl"):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    (source / "linked").symlink_to(other)
    (source / "train/linked").symlink_to(other / "deep")
    (source / "file").symlink_to(other / "f")
    return source


def test_what_is_skipped_is_counted(source: Path, tmp_path: Path) -> None:
    for words in ([], ["--plan-only"]):
        done = run(source, tmp_path / f"to{len(words)}", *words)
        assert done.returncode == 0, done.stderr
        assert "skipped: 2 links to folders, 3 hidden names" in (done.stdout + done.stderr).splitlines()
    assert files(tmp_path / "to0") == ["a", "file"]


@pytest.mark.parametrize(
    ("words", "said", "more"),
    [
        (["--hidden"], "skipped: 2 links to folders", [".b", ".d/e", "train/.c"]),
        (["--follow-links"], "skipped: 3 hidden names", ["linked/deep/g", "linked/f", "train/linked/g"]),
        (["--hidden", "--follow-links"], "", [".b", ".d/e", "linked/deep/g", "linked/f", "train/.c", "train/linked/g"]),
    ],
)
def test_what_is_asked_for_is_taken(words: list[str], said: str, more: list[str], source: Path, tmp_path: Path) -> None:
    done = run(source, tmp_path / "to", *words)
    assert done.returncode == 0, done.stderr
    assert said in (done.stdout + done.stderr).splitlines() if said else "skipped:" not in done.stdout + done.stderr
    assert files(tmp_path / "to") == sorted(["a", "file", *more])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [([], "1 hidden name, 1 folder of bookkeeping"), (["--hidden"], "1 folder of bookkeeping"),
     (["--hidden", "--follow-links"], "1 folder of bookkeeping")],
)  # fmt: skip
def test_books_of_a_folder_that_was_staged_itself_are_left_out(words: list[str], said: str, tmp_path: Path) -> None:
    for name in ("source/train/a", "source/train/.b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert run(tmp_path / "source/train", tmp_path / "books").returncode == 0
    (tmp_path / "books/.staging").rename(tmp_path / "source/train/.staging")
    done = run(tmp_path / "source", tmp_path / "to", *words)
    assert done.returncode == 0, done.stderr
    assert f"skipped: {said}" in (done.stdout + done.stderr).splitlines()
    assert files(tmp_path / "to") == (["train/.b", "train/a"] if words else ["train/a"])


def test_nothing_skipped_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("a")
    done = run(tmp_path / "source", tmp_path / "to")
    assert "skipped:" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_links_that_have_no_end_are_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "source/a/b").mkdir(parents=True)
    (tmp_path / "source/a/b/c").write_text("c")
    (tmp_path / "source/a/b/again").symlink_to(target)
    assert run(tmp_path / "source", tmp_path / "without").returncode == 0
    done = run(tmp_path / "source", tmp_path / "to", "--follow-links")
    assert done.returncode == 2
    assert "a folder that it lies in; remove the link, or leave out --follow-links" in done.stderr


@pytest.mark.parametrize("folders", [2, 5])
def test_links_of_folders_to_one_another_end_quickly(folders: int, tmp_path: Path) -> None:
    """Each has two links to each other one: 2^40 paths before the system counts too many links."""
    names = [f"folder{number}" for number in range(folders)]
    for name in names:
        (tmp_path / "source" / name).mkdir(parents=True)
        (tmp_path / "source" / name / "file").write_text("f")
        for other in names:
            for twice in "ab" if other != name else "":
                (tmp_path / "source" / name / f"{other}{twice}").symlink_to(f"../{other}")
    done = run(tmp_path / "source", tmp_path / "to", "--follow-links", "--plan-only")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "which has a link that leads back here; remove one of the links, or leave out --follow-links" in done.stderr


def test_a_link_back_from_elsewhere_is_refused_and_two_links_to_one_folder_are_not(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere/deep"
    (source / "a").mkdir(parents=True)
    elsewhere.mkdir(parents=True)
    (elsewhere / "file").write_text("f")
    for name in ("one", "a/two"):
        (source / name).symlink_to(elsewhere.parent)
    assert run(source, tmp_path / "to", "--follow-links").returncode == 0
    assert files(tmp_path / "to") == ["a/two/deep/file", "one/deep/file"]
    (elsewhere / "back").symlink_to(source)
    done = run(source, tmp_path / "again", "--follow-links", "--plan-only")
    assert done.returncode == 2
    assert "deep/back: is a link to " in done.stderr
    assert "which has a link that leads back here" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("target", "how"), [("place/to", "is"), ("place/to/d", "lies within"), ("place", "holds")])
@pytest.mark.parametrize("by_link", [False, True])
def test_links_to_the_destination_are_refused(target: str, how: str, by_link: bool, tmp_path: Path) -> None:
    """Each staging would bring what the last one brought, a folder deeper."""
    (tmp_path / "source/d").mkdir(parents=True)
    (tmp_path / "source/d/f").write_text("f")
    destination = tmp_path / "place/to"
    assert run(tmp_path / "source", destination).returncode == 0
    (tmp_path / "source/d/l").symlink_to(tmp_path / target)
    if by_link:
        (tmp_path / "way").symlink_to(tmp_path / "place")
        destination = tmp_path / "way/to"
    done = run(tmp_path / "source", destination, "--follow-links")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"d/l: is a link to {tmp_path / target}, which {how} the destination {destination}; remove" in done.stderr
    assert files(tmp_path / "place/to") == ["d/f"]


def test_an_index_has_neither_and_its_maker_says_so(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "index"
    assert main(["data", "index", str(source), "--out", str(index)]) == 0
    assert "skipped: 2 links to folders, 3 hidden names" in capsys.readouterr().err.splitlines()
    assert list(read_index(index).names) == ["a", "file"]
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/a").write_text("a")
    assert main(["data", "index", str(tmp_path / "plain")]) == 0
    assert "skipped:" not in capsys.readouterr().err


def test_an_index_says_itself_which_files_there_are(source: Path, tmp_path: Path) -> None:
    done = run(source, tmp_path / "to", "--index", tmp_path / "index", "--hidden")
    assert done.returncode == 2
    assert "says which files there are: leave out --follow-links, --hidden" in done.stderr


@pytest.mark.slow
def test_files_that_a_transform_does_not_know_are_named_with_what_to_do_and_auto_leaves_them(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "train").mkdir(parents=True)
    (source / "train/a.npy.gz").write_bytes(gzip.compress(b"content"))
    (source / "simulated.json").write_text("{}")
    done = run(source, tmp_path / "to", "--transform", "gunzip")
    assert done.returncode == 2
    assert "simulated.json: is not gzip; leave it out (--exclude), or as it is (--plain NAME; auto for" in done.stderr
    for number, plain in enumerate(("auto", "*.json")):
        to = tmp_path / f"to{number}"
        assert run(source, to, "--transform", "gunzip", "--plain", plain).returncode == 0
        assert files(to) == ["simulated.json", "train/a.npy"]
        assert (to / "train/a.npy").read_bytes() == b"content"
    (source / "train/a.npy.gz").write_bytes(b"damaged")
    done = run(source, tmp_path / "damaged", "--transform", "gunzip", "--plain", "auto")
    assert done.returncode == 2
    assert "train/a.npy.gz: is not gzip" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simulated.json", "simulated"])
def test_what_is_no_tfrecord_by_its_name_is_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    source, left = tmp_path / "source", tmp_path / "left"
    source.mkdir()
    (source / name).write_text("{" + " " * 100 + "}")
    done = run(source, tmp_path / "to", "--transform", "tfrecord-to-npy")
    assert done.returncode == 2
    assert "or as it is (--plain NAME; auto for all that end otherwise)" in done.stderr
    assert run(source, left, "--transform", "tfrecord-to-npy", "--plain", "auto").returncode == 0
    assert files(left) == [name]


def test_auto_is_refused_for_a_transform_that_does_not_say_what_it_knows(source: Path, tmp_path: Path) -> None:
    done = run(source, tmp_path / "to", "--transform", "json:loads", "--plain", "auto")
    assert done.returncode == 2
    assert "--plain auto: json:loads does not say which names it knows; give patterns instead" in done.stderr
