"""The command line: what it prints, what it refuses and with which words, alike from ``hpcbench stage``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpcbench.cli.main
import staging.__main__
from staging.ranks.signals import Interrupted, interruptible
from tests.staging.processes import ENVIRON, PLAIN, ROOT, contents, make_tree, run, said

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A few files."""
    make_tree(tmp_path / "source", 12)
    return tmp_path / "source"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``python -m staging`` in this process: exit code, output and error output."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["staging", *map(str, words)])
        return staging.__main__.main(), *capsys.readouterr()

    return call


@pytest.fixture
def hpcbench_stage(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``hpcbench stage`` in this process."""

    def call(*words: object) -> tuple[int, str, str]:
        return hpcbench.cli.main.main(["stage", *map(str, words)]), *capsys.readouterr()

    return call


def test_help_is_light_and_narrow() -> None:
    script = (
        "import sys; from staging.__main__ import main; sys.argv[1:] = ['--help']\n"
        "try: main()\n"
        "finally: print(*({'torch', 'numpy', 'h5py', 'mpi4py', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRON, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr.strip() == ""
    assert max(map(len, done.stdout.splitlines())) <= 100
    for option in ("--placement", "--path", "--transform", "--verify", "--plan-only", "--clean", "--report", "--seed"):
        assert option in done.stdout
    assert "hpcbench stage" not in done.stdout


def test_help_of_the_suite_is_the_same() -> None:
    environ = ENVIRON | {"COLUMNS": "100"}
    texts = []
    for words in (["staging"], ["hpcbench", "stage"]):
        done = subprocess.run(
            [sys.executable, "-m", *words, "--help"], env=environ, cwd=ROOT, capture_output=True, text=True, check=True
        )
        texts.append(done.stdout[done.stdout.index("options:") :])
    assert texts[1].startswith(texts[0])  # the suite adds a plot


REFUSED: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "stage needs SRC and DST; see --help"),
    "no destination": (["{source}"], "stage needs SRC and DST; see --help"),
    "clean and a source": (["{source}", "--clean", "{out}"], "--clean takes one folder and no SRC or DST ({source})"),
    "clean and plan": (["--clean", "{out}", "--plan-only"], "--clean and --plan-only exclude one another; give one"),
    "clean and a report": (
        ["--clean", "{out}", "--report", "{out}.json"],
        "--clean has no figures for --report {out}.json; leave it out",
    ),
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
    "no pieces": (["{source}", "{out}", "--piece-bytes", "0"], "piece_bytes (0) must be at least 1"),
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
        (["--threads", "x"], "argument --threads: invalid int value: 'x'; see python -m staging --help"),
        (["--report"], "argument --report: expected one argument"),
    ],
)
def test_words_that_cannot_be_read(words: list[str], message: str, command: Command) -> None:
    code, output, error = command(*words)
    assert (code, output) == (2, "")
    assert error.startswith(f"staging: error: {message}")
    assert error.count("\n") == 1


def test_contradicting_launchers_are_told(
    source: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PMI_RANK": "0", "PMI_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    code, _, error = command(source, tmp_path / "out")
    assert code == 2
    assert re.match(r"staging: error: .*disagree on rank", error)


def test_interrupted_before_it_began(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(staging.__main__, "run", interrupt)
    assert command() == (130, "", "staging: aborted: signal SIGINT; run it again to go on\n")


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


def tree_times(root: Path) -> dict[str, int]:
    """When each file and folder was last changed."""
    return {str(path): path.lstat().st_mtime_ns for path in [root, *root.rglob("*")]}


def test_who_reads_the_output_may_go(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "staging", source, tmp_path / "out", "--report", tmp_path / "report.json"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command, env=ENVIRON, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(writing)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["files"] > 0


def test_plan_only_touches_nothing(source: Path, tmp_path: Path, command: Command, hpcbench_stage: Command) -> None:
    before = tree_times(tmp_path)
    code, output, error = command(source, tmp_path / "out", "--plan-only")
    assert (code, error) == (0, "")
    total = sum(len(data) for data in contents(source).values())
    assert f"12 files, {total / 1e3:.2f} kB" in output
    assert "it fits on every node, which takes at most " in output
    assert max(map(len, output.splitlines())) <= 100
    assert hpcbench_stage(source, tmp_path / "out", "--plan-only") == (0, output, "")
    assert tree_times(tmp_path) == before


def test_plan_only_of_what_is_left(source: Path, tmp_path: Path, command: Command) -> None:
    assert command(source, tmp_path / "out", "--first", 5)[0] == 0
    (tmp_path / "out" / sorted(contents(source))[0]).unlink()
    before = tree_times(tmp_path)
    code, output, _ = command(source, tmp_path / "out", "--plan-only")
    assert code == 0
    assert "\n8 files, " in output
    assert "; 4 files are there already\n" in output
    assert tree_times(tmp_path) == before
    assert command(source, tmp_path / "out", "--plan-only", "--report", tmp_path / "plan.json")[0] == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert (plan["files"], plan["nodes"][0]["files_landing"]) == (8, 8)


def test_plan_only_of_what_does_not_fit(
    source: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staging.storage.space.free_bytes", lambda folder: 1 << 10)
    code, output, error = command(source, tmp_path / "out", "--plan-only")
    assert code == 2
    assert "12 files, " in output
    assert "fits" not in output
    assert re.match(rf"staging: error: {tmp_path}/out: node \S+ has 0.00 MiB free where staging needs \S+ MiB", error)
    assert error.count("\n") == 1


def test_plan_only_counts_what_a_transform_makes(tmp_path: Path, command: Command) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.gz").write_bytes(bytes(40_960))
    code, output, _ = command(
        tmp_path / "source", tmp_path / "out", "--plan-only", "--transform", "gunzip:expansion=10"
    )
    assert code == 0
    assert "it fits on every node, which takes at most 409.60 kB after gunzip:expansion=10, as estimated\n" in output


def test_figures_are_printed_and_written(
    source: Path, tmp_path: Path, command: Command, hpcbench_stage: Command
) -> None:
    code, output, error = command(source, tmp_path / "out", "--report", tmp_path / "report.json")
    assert code == 0
    assert "12/12 files" in error
    total = sum(len(data) for data in contents(source).values())
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["files"], report["skipped"], report["bytes_read"], report["bytes_landed"]) == (12, 0, total, total)
    assert "12 files in " in output
    assert contents(tmp_path / "out") == contents(source)
    code, again, _ = hpcbench_stage(source, tmp_path / "other")
    assert code == 0
    assert shape(again) == shape(output)


def shape(text: str) -> str:
    """The text without its numbers, up to the activity that these decide."""
    return re.sub(r" *[\d.]+%? ?([kM]?B)?", "#", text.partition("busiest")[0])


def test_clean_removes_what_was_staged_and_tells_what_is_left(
    source: Path, tmp_path: Path, command: Command, hpcbench_stage: Command
) -> None:
    out = tmp_path / "out"
    assert command(source, out)[0] == 0
    (out / "train" / "notes.txt").write_text("mine")
    total = sum(len(data) for data in contents(source).values())
    code, output, error = command("--clean", out)
    assert (code, output) == (0, f"{out}: removed 12 files, {total / 1e3:.2f} kB\n")
    assert error == "left train/notes.txt, which is not as staging put it there\n"
    assert contents(out) == {"train/notes.txt": b"mine"}
    assert command(source, tmp_path / "other")[0] == 0
    assert hpcbench_stage("--clean", tmp_path / "other") == (0, output.replace(str(out), str(tmp_path / "other")), "")
    assert contents(source) != {}


@pytest.mark.mpi
def test_clean_of_all_nodes(source: Path, tmp_path: Path, mpiexec: str) -> None:
    launch = [mpiexec, "-n", 3, *PLAIN, "--simulated-nodes", 2]
    assert run([*launch, source, tmp_path / "{node}"])[0] == 0
    code, output, error = run([*launch, "--clean", tmp_path / "{node}"])
    assert (code, error) == (0, "")
    assert [line.split(" 12 files")[0] for line in output.splitlines()] == [
        f"{tmp_path}/node{node}: removed" for node in range(2)
    ]
    assert contents(tmp_path / "node0") == contents(tmp_path / "node1") == {}


@pytest.mark.mpi
def test_a_destination_for_each_rank(source: Path, tmp_path: Path, mpiexec: str) -> None:
    assert run([mpiexec, "-n", 2, *PLAIN, source, tmp_path / "{rank}", "--placement", "shard"])[0] == 0
    parts = [contents(tmp_path / str(rank)) for rank in range(2)]
    assert all(parts)
    assert parts[0] | parts[1] == contents(source)


def test_the_first_signal_ends_in_order_and_the_next_are_ignored() -> None:
    def meet_two() -> None:
        with interruptible():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # ignored where a shell has started the tests in the background
    with pytest.raises(Interrupted, match="signal SIGTERM") as caught:
        meet_two()
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGINT) is before


def test_a_late_second_signal_ends_at_once() -> None:
    script = (
        "import os, signal, time\n"
        "from staging.ranks import signals\n"
        "signals.REPEATED_S = 0.05\n"
        "with signals.interruptible():\n"
        "    try: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    except signals.Interrupted:\n"
        "        time.sleep(0.1)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(10)"
    )
    assert subprocess.run([sys.executable, "-c", script], env=ENVIRON, check=False).returncode == 130
