"""``hpcbench analyze`` asked again: a copy where nothing has changed, a new analysis where anything has."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import pytest

import hpcbench.cli.analyze
from hpcbench.analysis.analysis_cache import MOST, AnalysisCache, analyses_folder, version_of_code
from hpcbench.cli.main import main
from staging.errors import InputError
from tests.hpcbench.mlperf.test_read_log import COSMOFLOW, DEEPCAM, in_round

LONG_AGO_S = 100


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def rounds(tmp_path: Path) -> Path:
    """Two logs that settled long ago."""
    for log in (COSMOFLOW, DEEPCAM):
        in_round(tmp_path / "rounds", log, "box")
    settle(tmp_path / "rounds")
    return tmp_path / "rounds"


def settle(folder: Path) -> None:
    """Set the times of all files back: a file that changed just now is not cached."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - LONG_AGO_S, time.time() - LONG_AGO_S))


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of each file below a folder, by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The analyses that were made, rather than copied; drawing, which takes seconds, is left out."""
    names: list[str] = []

    def make(args, records, machine):
        names.append(args.out.name)
        args.out.mkdir()
        (args.out / "analysis.html").write_text(f"{len(records)} runs, {args.base}, {machine and machine.name}")
        return args.out / "analysis.html", "told"

    monkeypatch.setattr(hpcbench.cli.analyze, "make", make)
    return names


def test_the_same_question_gets_a_copy(rounds, tmp_path, monkeypatch, capsys):
    def not_called(*args):
        raise AssertionError

    in_round(rounds, DEEPCAM, "other")
    settle(rounds)
    assert main(["analyze", str(rounds), "--out", str(tmp_path / "first")]) == 0
    first = capsys.readouterr().out.replace("first", "again")
    for name in ("make", "read"):
        monkeypatch.setattr(hpcbench.cli.analyze, name, not_called)
    assert main(["analyze", str(rounds), "--out", str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out == first
    assert files_of(tmp_path / "again") == files_of(tmp_path / "first")
    assert len(files_of(tmp_path / "again")) > 10


@pytest.mark.parametrize(
    "words",
    [["--published"], ["--published", "--application", "deepcam", "--base", "selene v1.0"],
     ["{rounds}", "--published", "--machine", "perlmutter-gpu"]],
    ids=["all", "of one application", "beside logs"],
)  # fmt: skip
def test_the_shipped_records_are_not_analyzed_twice(words, rounds, tmp_path, made):
    for name in ("first", "again"):
        line = [word.format(rounds=rounds) for word in words]
        assert main(["analyze", *line, "--out", str(tmp_path / name)]) == 0
    assert made == ["first"]
    assert files_of(tmp_path / "again") == files_of(tmp_path / "first")


def test_another_question_is_answered_anew(rounds, tmp_path, made, monkeypatch):
    questions = [
        [str(rounds)], [str(rounds), "--base", "box"], [str(rounds), "--against", "box"], [str(rounds), "--published"],
        [str(next(rounds.rglob("deepcam")))], [str(rounds), "--application", "deepcam"],
        [str(rounds), "--machine", "polaris"], [str(rounds), "--no-cache"], [str(rounds), "--no-cache"],
    ]  # fmt: skip
    for number, words in enumerate(questions):
        assert main(["analyze", *words, "--out", str(tmp_path / f"out{number}")]) == 0
    assert len(made) == len(questions)
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "rounds", "--out", "relative"]) == 0
    assert made[-1] == "relative", "records name their logs as the command does"


@pytest.mark.parametrize("changed", ["log", "description", "added", "machine"])
def test_a_changed_file_is_read_again(rounds, tmp_path, made, changed, monkeypatch):
    site = tmp_path / "site"
    (site / "machines").mkdir(parents=True)
    (site / "machines" / "ours.yaml").write_text("title: Ours\n")
    settle(site)
    monkeypatch.setattr("hpcbench.batch.site.machine_folders", lambda: [site / "machines"])
    words = ["analyze", str(rounds), "--out"]
    for name in ("first", "second"):
        assert main([*words, str(tmp_path / name)]) == 0
    assert made == ["first"]
    log = next(rounds.rglob("result_1.txt"))
    if changed == "added":
        in_round(rounds, COSMOFLOW, "box", name="result_2.txt")
    else:
        description = next(rounds.rglob("box.json"))
        path = {"log": log, "description": description, "machine": site / "machines" / "ours.yaml"}[changed]
        path.write_text(path.read_text() + "\n")
    settle(rounds)
    for name in ("third", "fourth"):
        os.utime(site / "machines" / "ours.yaml", (10, 10))
        assert main([*words, str(tmp_path / name)]) == 0
    assert made == ["first", "third"]


def test_what_may_change_unseen_is_not_cached(rounds, tmp_path, made):
    own = tmp_path / "mine"
    own.mkdir()
    (own / "config.yaml").write_text("{}\n")
    (own / "mllog.txt").write_bytes(DEEPCAM.read_bytes())
    settle(own)
    (tmp_path / "result_1.txt").write_text("not a log\n")
    settle(tmp_path)
    just_now = in_round(tmp_path / "new", DEEPCAM)
    for number, path in enumerate((own, tmp_path / "result_1.txt", just_now)):
        for again in "ab":
            main(["analyze", str(rounds), str(path), "--out", str(tmp_path / f"{number}{again}")])
    assert made == ["0a", "0b", "1a", "1b", "2a", "2b"]


def test_another_version_of_the_code_asks_anew(rounds, tmp_path, made, monkeypatch):
    import hpcbench.analysis.analysis_cache as module

    for number, code in enumerate(["one", "one", "another", None, None]):
        monkeypatch.setattr(module, "version_of_code", lambda code=code: code)
        assert main(["analyze", str(rounds), "--out", str(tmp_path / f"out{number}")]) == 0
    assert made == ["out0", "out2", "out3", "out4"], "what cannot be looked at may have changed"


def test_the_version_of_the_code_is_that_of_its_files(tmp_path, monkeypatch):
    import hpcbench.analysis.analysis_cache as module

    package = tmp_path / "package"
    package.mkdir()
    monkeypatch.setattr(module.hpcbench, "__path__", [str(package)])
    before = version_of_code()
    (package / "page.html").write_text("changed")
    assert version_of_code() not in (before, None)
    (package / os.fsdecode(b"dangling-\xff")).symlink_to("nowhere")
    assert version_of_code() is None
    for name in ("hpcbench", "staging"):
        monkeypatch.setattr(getattr(module, name), "__path__", [str(tmp_path / "archive.zip" / name)])
    assert version_of_code() is None
    monkeypatch.undo()
    monkeypatch.setattr(module, "LIBRARIES", ("matplotlib", "a-library-that-is-not-installed"))
    assert version_of_code() is None


@pytest.mark.parametrize("at", [0.0, 0.3, 0.6, 0.9])
def test_a_damaged_cache_is_as_none(rounds, tmp_path, made, at):
    assert main(["analyze", str(rounds), "--out", str(tmp_path / "first")]) == 0
    (cached,) = analyses_folder().iterdir()
    content = bytearray(cached.read_bytes())
    where = int(at * len(content))
    content[where : where + 8] = b"\xff" * 8
    cached.write_bytes(content)
    assert main(["analyze", str(rounds), "--out", str(tmp_path / "again")]) == 0
    assert files_of(tmp_path / "again") == files_of(tmp_path / "first")
    cached.write_bytes(content[: len(content) // 2])
    assert main(["analyze", str(rounds), "--out", str(tmp_path / "third")]) == 0
    assert files_of(tmp_path / "third") == files_of(tmp_path / "first")


def test_a_cache_that_cannot_be_written_is_as_none(rounds, tmp_path, made):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "hpcbench").write_text("a file where the folder would be")
    for name in ("first", "again"):
        assert main(["analyze", str(rounds), "--out", str(tmp_path / name)]) == 0
    assert made == ["first", "again"]


def test_the_oldest_analyses_are_deleted(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "analysis.html").write_text("page")
    cache = AnalysisCache(tmp_path / "analyses")
    for number in range(MOST + 3):
        cache.put(f"k{number}", out, "told")
        os.utime(tmp_path / "analyses" / f"k{number}.zip", (number, number))
        assert cache.get("k0") is not None, "asked for again and again"
    assert len(list((tmp_path / "analyses").iterdir())) == MOST
    assert cache.get("k1") is None
    assert cache.get(f"k{MOST + 2}") is not None


def test_only_files_of_an_analysis_are_copied(tmp_path):
    cache = AnalysisCache(tmp_path)
    with zipfile.ZipFile(tmp_path / "key.zip", "w") as archive:
        for name in ("analysis.html", "printed.txt", "../above.csv", "tables/a.csv", "tables/../../b.csv", "/c.html"):
            archive.writestr(name, "text")
    analysis = cache.get("key")
    assert analysis is not None
    assert set(analysis.files) == {"analysis.html", "tables/a.csv"}
    assert analysis.write(tmp_path / "out") == tmp_path / "out" / "analysis.html"
    assert set(files_of(tmp_path / "out")) == {"analysis.html", "tables/a.csv"}
    with pytest.raises(InputError, match=r"--out \S+ exists; remove it, or give another name"):
        analysis.write(tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--out \S+ cannot be written \(Not a directory\); give another folder"):
        analysis.write(tmp_path / "file" / "out")
