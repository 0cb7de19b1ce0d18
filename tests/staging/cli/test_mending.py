"""``--verify-only`` and ``--repair``, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.staging.cli.conftest import Command
from tests.staging.processes import PLAIN, run
from tests.staging.spoiled import read_of, spoil

FILES = 12


def test_every_bad_file_is_listed(source: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    assert command(source, out)[0] == 0
    code, said, _ = command("--verify-only", out)
    assert code == 0
    assert said.startswith(f"all {FILES} files are good; ")
    bad = spoil(out)
    code, said, error = command("--verify-only", out, "--report", tmp_path / "found.json")
    assert code == 2
    assert "error" not in error
    head, *rows, total, change = said.splitlines()
    assert head.split() == ["node", "problem", "file"]
    assert [row.split()[-1] for row in rows] == bad
    assert all(len(row) <= 100 for row in rows)
    assert total.startswith(f"3 of {FILES} files are bad; ")
    assert change == "stage again with --repair, which brings just these files"
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["good"], found["files"], found["bad"]) == (False, FILES, 3)
    (node,) = found["nodes"]
    assert [file["name"] for file in node["bad"]] == bad
    problems = {file["name"]: file["problem"] for file in node["bad"]}
    assert sum(problem == "is not there" for problem in problems.values()) == 1
    assert sum("bytes where" in problem for problem in problems.values()) == 1
    assert sum("has CRC32C" in problem for problem in problems.values()) == 1


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_of_mpi_look_together(source: Path, tmp_path: Path, mpiexec: str) -> None:
    words = [mpiexec, "-n", 3, *PLAIN]
    assert run([*words, source, tmp_path / "out"])[0] == 0
    bad = spoil(tmp_path / "out")
    code, said, error = run([*words, "--verify-only", tmp_path / "out"])
    assert code == 2, error
    assert [row.split()[-1] for row in said.splitlines()[1:4]] == bad


def test_a_repair_from_the_command_line(source: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    assert command(source, out)[0] == 0
    bad = spoil(out)
    code, planned, _ = command(source, out, "--repair", "--plan-only")
    assert code == 0
    assert f"3 files, {read_of(source, bad) / 1e3:.2f} kB" in planned
    code, said, error = command(source, out, "--repair")
    assert code == 0
    assert [line.split()[-1] for line in error.splitlines() if " has " in line or " is not there" in line] == bad
    assert "3 were bad and are mended" in " ".join(said.split())
    assert command("--verify-only", out)[0] == 0
