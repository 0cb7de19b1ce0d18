"""What the command line prints, alike from ``hpcbench stage``: help, plans, figures, and what cleaning removed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from staging.units import human
from tests.staging.cli.conftest import Command
from tests.staging.processes import ENVIRON, PLAIN, ROOT, contents, run


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
    need = human(409_600 + 13 * os.statvfs(tmp_path).f_frsize)  # a block of the manifest, and what goes beside it
    assert f"it fits on every node, which takes at most {need} after gunzip:expansion=10, as estimated\n" in output


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


def test_a_single_file_is_counted_as_one(tmp_path: Path, command: Command) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / "a").write_bytes(b"a")
    assert "\n1 file, 1 B, nodes: 1, " in command(source, out, "--plan-only")[1]
    assert "1 file in " in command(source, out, "--verify", "none")[1]
    assert "; 1 file is there already\n" in command(source, out, "--plan-only")[1]
    checked = command("--verify-only", out)
    assert "1 file landed without a checksum, and was compared by size alone" in "".join(map(str, checked))
    assert "the file is good; " in checked[1]
    assert command("--clean", out)[1] == f"{out}: removed 1 file, 1 B\n"


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


@pytest.mark.slow
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
