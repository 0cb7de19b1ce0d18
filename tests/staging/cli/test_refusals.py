"""What the command line refuses and with which words, alike from ``hpcbench stage``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import staging.__main__
from staging.cli_options import add_arguments
from tests.staging.cli.conftest import Command
from tests.staging.processes import PLAIN, contents, run, said

REFUSED: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "stage needs SRC and DST; see --help"),
    "no destination": (["{source}"], "stage needs SRC and DST; see --help"),
    "clean and a source": (["{source}", "--clean", "{out}"], "--clean takes one folder and no SRC or DST ({source})"),
    "clean and plan": (["--clean", "{out}", "--plan-only"], "--clean and --plan-only exclude one another; give one"),
    "clean and a report": (
        ["--clean", "{out}", "--report", "{out}.json"],
        "--clean has no figures for --report {out}.json; leave it out",
    ),
    "drop without update": (["{source}", "{out}", "--drop-vanished"], "--drop-vanished is for a staging that follows"),
    "verify and repair": (
        ["--verify-only", "{out}", "--repair"],
        "--repair is for a staging, and --verify-only is",
    ),
    "clean and update": (["--clean", "{out}", "--update"], "--update is for a staging, and --clean is none; leave one"),
    "verify and a source": (["{source}", "--verify-only", "{out}"], "--verify-only takes one folder and no SRC or DST"),
    "verify nothing": (["--verify-only", ""], "the folder of --verify-only is empty: perhaps a variable that is not"),
    "verify and clean": (["--verify-only", "{out}", "--clean", "{out}"], "--clean and --verify-only exclude one"),
    "nothing to verify": (["--verify-only", "{source}"], "{source}: has no staging manifest (.staging/manifest.jsonl)"),
    "no manifest": (["--clean", "{source}"], "{source}: has no staging manifest (.staging/manifest.jsonl); name a"),
    "no such folder": (["--clean", "{out}"], "{out}: has no staging manifest"),
    "no such field": (["--clean", "{out}/{{host}}"], "holds '{{host}}'; the fields are {{node}} and {{rank}}"),
    "report exists": (["{source}", "{out}", "--report", "{there}"], "{there} exists; name another --report file"),
    "no folder for it": (
        ["{source}", "{out}", "--report", "{out}/report.json"],
        "{out}/report.json cannot be written; name a --report file in a folder that is yours",
    ),
    "more nodes than ranks": (
        ["{source}", "{out}", "--simulated-nodes", "2"],
        "--simulated-nodes (2) must be 1 to the number of ranks (1)",
    ),
    "no threads": (["{source}", "{out}", "--threads", "0"], "threads (0) must be at least 1"),
    "no pieces": (["{source}", "{out}", "--piece-bytes", "0"], "--piece-bytes (0) must be at least 1"),
    "bad seed": (["{source}", "{out}", "--placement", "shard", "--seed", "-1"], "seed (-1) must be at least 0"),
    "no files": (["{source}", "{out}", "--first", "0"], "first (0) must be at least 1"),
    "no source": (["{out}", "{out}"], "{out} does not exist; name a folder or an HDF5 file as the source"),
    "no such source": (["/nowhere/at/all", "{out}"], "/nowhere/at/all does not exist"),
    "not HDF5": (["{there}", "{out}"], "{there} is a file; a source is a folder, or one HDF5 file"),
    "an index of one file": (
        ["{one}", "{out}", "--index", "{there}"],
        "index ({there}) lists the files of a folder; {one} is one file: leave it out",
    ),
    "patterns for one file": (
        ["{one}", "{out}", "--include", "*"],
        "include, exclude and first choose among files; {one} is one file: leave them out",
    ),
    "no such transform": (["{source}", "{out}", "--transform", "gunzp"], "transform 'gunzp' is not known; use one of"),
    "no such index": (["{source}", "{out}", "--index", "{out}"], "{out}: no such index; make one with"),
    "nothing left": (["{source}", "{out}", "--exclude", "*"], "holds no file that is left by exclude *"),
    "into itself": (["{source}", "{source}"], "{source}: is the source itself; choose a destination outside"),
    "not ours": (["{source}", "{foreign}"], "{foreign}: is not empty and was not made by staging; empty it, or choose"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_how(
    case: str, source: Path, tmp_path: Path, command: Command, hpcbench_stage: Command
) -> None:
    (tmp_path / "there").write_text("a file")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("all my work")
    if case == "no source":
        case_words = ["{missing}", "{out}"]
        said_words = "{missing} does not exist; name a folder or an HDF5 file as the source"
    else:
        case_words, said_words = REFUSED[case]
    (tmp_path / "one.h5").write_bytes(b"never read")
    names = {name: tmp_path / name for name in ("source", "out", "there", "foreign", "missing")}
    names["one"] = tmp_path / "one.h5"
    words = [word.format(**names) for word in case_words]
    before = contents(tmp_path)
    code, output, error = command(*words)
    assert (code, output) == (2, "")
    assert error.startswith("staging: error: ")
    assert error.count("\n") == 1
    assert said_words.format(**names) in error
    assert hpcbench_stage(*words) == (2, "", error.replace("staging: error: ", "hpcbench: error: ", 1))
    assert contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bogus"], "unrecognized arguments: --bogus; see python -m staging --help"),
        (["--thread", "2"], "unrecognized arguments: --thread"),
        (["a", "b", "c"], "unrecognized arguments: c"),
        (["--placement", "x"], "argument --placement: invalid choice: 'x'"),
        (["--path", "x"], "argument --path: invalid choice: 'x'"),
        (["--verify", "x"], "argument --verify: invalid choice: 'x'"),
        (["--threads", "x"], "--threads (x) must be a whole number; choose from 1 to 256"),
        (["--report"], "argument --report: expected one argument"),
    ],
)
def test_words_that_cannot_be_read(words: list[str], message: str, command: Command) -> None:
    code, output, error = command(*words)
    assert (code, output) == (2, "")
    assert error.startswith(f"staging: error: {message}")
    assert error.count("\n") == 1


VALUES = {
    "--placement": "shard", "--path": "exchange", "--verify": "none", "--write-way": "early", "--threads": "3",
    "--piece-bytes": "9", "--first": "1", "--seed": "1", "--simulated-nodes": "1", "--probe-seconds": "1",
}  # fmt: skip
"""A value for each option that does not take any text."""
APPLY = {"--clean": ["--simulated-nodes"], "--verify-only": ["--threads", "--simulated-nodes", "--report"]}


def given(option: str, folder: Path) -> list[str]:
    """The option, with a value other than its default if it takes one."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    is_flag = parser._option_string_actions[option].nargs == 0
    return [option] if is_flag else [option, VALUES.get(option, str(folder / "new"))]


def options() -> list[str]:
    """All long options of the command but those that name the folder."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    return [option for option in parser._option_string_actions if option not in APPLY]


@pytest.mark.parametrize("mode", APPLY)
@pytest.mark.parametrize("option", options())
def test_an_option_that_would_be_ignored_is_refused(
    option: str, mode: str, source: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out"
    assert command(source, out)[0] == 0
    code, _, error = command(mode, out, *given(option, tmp_path))
    if option in APPLY[mode]:
        assert code == 0, error
        return
    assert code == 2
    assert error.count("\n") == 1
    assert option in error
    assert mode in error
    assert contents(out) == contents(source)


def test_contradicting_launchers_are_told(
    source: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PMI_RANK": "0", "PMI_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    code, _, error = command(source, tmp_path / "out")
    assert code == 2
    assert re.match(r"staging: error: .*disagree on rank", error)


def test_a_locale_in_which_names_are_not_utf_8(
    source: Path, tmp_path: Path, command: Command, hpcbench_stage: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "hé.bin").touch()
    words = "names of files are ascii in this locale, and must be utf-8; set PYTHONUTF8=1, or LC_ALL=C.UTF-8"
    ascii_only = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    code, _, error = run([*PLAIN, source, tmp_path / "out"], **ascii_only)
    assert (code, said(error)) == (2, [f"staging: error: {words}"])
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert command(source, tmp_path / "out") == (2, "", f"staging: error: {words}\n")
    assert hpcbench_stage(source, tmp_path / "out") == (2, "", f"hpcbench: error: {words}\n")
    assert not (tmp_path / "out").exists()


def test_interrupted_before_it_began(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(staging.__main__, "run", interrupt)
    assert command() == (130, "", "staging: aborted: signal SIGINT; run it again to continue\n")


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bogus"], "unrecognized arguments: --bogus"),
        ([], "stage needs SRC and DST"),
        (["{source}", "{out}", "--simulated-nodes", "9"], "--simulated-nodes (9) must be 1 to the number of ranks (3)"),
        (["{source}", "{out}", "--report", "{out}/none/x"], "cannot be written; name a --report file"),
        (["{source}", "{out}", "--placement", "shard", "--seed", "-1"], "seed (-1) must be at least 0"),
        (["{source}", "{out}", "--first", "0"], "first (0) must be at least 1"),
        (["{source}", "{out}", "--include", "none"], "holds no file that is left by include none"),
        (["{source}", "{source}/x", "--path", "exchange"], "lies within the source"),
    ],
)
def test_several_ranks_say_it_once(words: list[str], message: str, source: Path, tmp_path: Path, mpiexec: str) -> None:
    names = {"source": source, "out": tmp_path / "out"}
    code, output, error = run([mpiexec, "-n", 3, *PLAIN, *(word.format(**names) for word in words)])
    assert (code, output) == (2, "")
    assert len(said(error)) == 1, error
    assert said(error)[0].startswith("staging: error: ")
    assert message in said(error)[0]
    assert not (tmp_path / "out").exists()
