"""Stagings over two nodes of a real Slurm: contents, bytes read, and what a killed rank leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from staging.ranks.process_exit import ALL_DIED
from tests.params import slow_except
from tests.staging.processes import (
    LIMIT_S,
    PROGRAMS,
    ROOT,
    contents,
    journal,
    make_tree,
    memory_folder,
    named,
    outcomes,
    said,
    unfinished,
    wait_until,
)

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.usefixtures("mpiexec")]

SRUN = ["srun", "--mpi=pmi2", "-N2", "-n4"]
PLAIN = [*SRUN, sys.executable, "-m", "staging"]
PACED = [*SRUN, sys.executable, PROGRAMS / "paced.py"]
FILES = 200


@pytest.fixture(autouse=True)
def import_path(slurm: Any) -> None:
    """Jobs run in a folder of their own; the paced ones pause before each piece."""
    slurm.environ.update(PYTHONPATH=str(ROOT), PACE_S="0.05")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where it can be: a flush of a disk waits for what others write to it."""
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Small files."""
    make_tree(tmp_path / "source", FILES)
    return tmp_path / "source"


def nodes(folder: Path) -> list[Path]:
    """Where the two nodes have their parts."""
    return [folder / "node1", folder / "node2"]


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["replicate", "shard"])
def test_an_exchange_between_two_nodes(slurm: Any, source: Path, tmp_path: Path, placement: str) -> None:
    command = [*PLAIN, source, tmp_path / "out" / "{node}", "--path", "exchange", "--placement", placement]
    done = slurm.run(*command, "--piece-bytes", 50_000, "--report", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    expected = contents(source)
    found = [contents(folder) for folder in nodes(tmp_path / "out")]
    if placement == "replicate":
        assert found == [expected, expected]
    else:
        assert all(found)
        assert sum(len(part) for part in found) == FILES
        assert found[0] | found[1] == expected
    report = json.loads((tmp_path / "report.json").read_text())
    assert [node["name"] for node in report["nodes"]] == ["node1", "node2"]
    assert report["bytes_read"] == sum(len(data) for data in expected.values())
    assert report["totals"]["bytes_sent"] == report["totals"]["bytes_received"] > 0
    for folder in nodes(tmp_path / "out"):
        assert set(outcomes(folder).values()) == {"done"}
        assert len(outcomes(folder)) == 2


def begin(slurm: Any, source: Path, out: Path) -> subprocess.Popen[str]:
    """A staging of which both nodes have named some files, and lack most."""
    command = [*PACED, source, out / "{node}", "--path", "exchange", "--piece-bytes", 20_000]
    process = subprocess.Popen(
        [str(word) for word in command], env=slurm.environ, cwd=slurm.scratch, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: all(named(folder) for folder in nodes(out)), 60)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("who", slow_except([3], [0, 3]))
def test_a_killed_rank_is_named_by_the_next_run(slurm: Any, source: Path, tmp_path: Path, who: int) -> None:
    out = tmp_path / "out"
    job = begin(slurm, source, out)
    victim = nodes(out)[who // 2]
    pid = next(line["pid"] for line in journal(victim) if line.get("event") == "start" and line["rank"] == who)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    _, error = job.communicate(timeout=60)
    assert time.monotonic() - began < LIMIT_S
    assert job.returncode != 0
    node = f"node{1 + who // 2}"
    (line,) = said(error)
    assert line.startswith("staging: aborted: rank ")
    assert line.endswith(("the process died without a word (killed, out of memory, or its node was lost)", ALL_DIED))
    expected = contents(source)
    there = [named(folder) for folder in nodes(out)]
    ends: dict[int, str] = {}
    for folder, items in zip(nodes(out), there, strict=True):
        assert 0 < len(items) < FILES
        assert all((folder / name).read_bytes() == expected[name] for name in items)
        ends |= outcomes(folder)
    # On a busy machine some don't get to write it down in the second that they have; srun then kills them, too.
    assert {end for other, end in ends.items() if other != pid and end} <= {"aborted"}
    killed = sum(not end for end in ends.values())
    # Slurm may kill others before all connections of the dead rank are closed; then rank 0 may see those end first.
    started = [line for folder in nodes(out) for line in journal(folder) if line.get("event") == "start"]
    gone = {f"rank {start['rank']} on node{1 + start['rank'] // 2}" for start in started if not ends[start["pid"]]}
    named_ranks = set(re.findall(r"rank \d on node\d", line))
    assert named_ranks
    assert named_ranks <= gone
    done = slurm.run(*PLAIN, source, out / "{node}", "--path", "exchange", "--report", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    assert f"was killed on node {node}: rank {who}, pid {pid}; continuing from what it left" in done.stderr
    assert done.stderr.count("was killed on node") == killed
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["skipped"] == sum(len(items) for items in there)
    assert report["files"] == 2 * FILES - report["skipped"]
    lacking = {name for name in expected if not all(name in items for items in there)}
    assert report["bytes_read"] == sum(len(expected[name]) for name in lacking)
    for folder in nodes(out):
        assert contents(folder) == expected
        assert unfinished(folder) == []


@pytest.mark.slow
def test_a_file_that_vanishes_is_told_by_one_line(slurm: Any, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = begin(slurm, source, out)
    name = sorted(contents(source))[-1]  # read by the last rank, towards the end
    (source / name).unlink()
    _, error = job.communicate(timeout=60)
    assert job.returncode != 0  # srun tells of the worst task, and MPI's Abort kills those that are slow to end
    assert len(said(error)) == 1, error
    assert f"staging: aborted: rank 3 on node2: DataError: {source / name}: vanished from the source" in said(error)[0]
    for folder in nodes(out):
        assert set(outcomes(folder).values()) == {"aborted"}


@pytest.mark.slow
@pytest.mark.parametrize("command", slow_except(["scancel"], ["scancel", "SIGINT"]))
def test_a_job_that_is_cancelled(slurm: Any, source: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out"
    job = begin(slurm, source, out)
    began = time.monotonic()
    if command == "scancel":
        number = slurm.run("squeue", "--noheader", "--format=%i").stdout.split()
        assert slurm.run("scancel", *number).returncode == 0
    else:
        job.send_signal(signal.SIGINT)
        time.sleep(0.3)
        job.send_signal(signal.SIGINT)  # srun asks for a second one within a second
    _, error = job.communicate(timeout=60)
    assert time.monotonic() - began < LIMIT_S
    assert job.returncode != 0
    assert len(said(error)) <= 1, error
    done = slurm.run(*PLAIN, source, out / "{node}", "--path", "exchange")
    assert done.returncode == 0, done.stderr
    for folder in nodes(out):
        assert contents(folder) == contents(source)
        assert unfinished(folder) == []


@pytest.mark.slow
def test_two_nodes_that_share_a_destination(slurm: Any, source: Path, tmp_path: Path) -> None:
    done = slurm.run(*PLAIN, source, tmp_path / "out")
    assert done.returncode == 2
    assert len(said(done.stderr)) == 1
    assert "two nodes share this destination" in said(done.stderr)[0]


def test_a_wrong_word_is_told_once(slurm: Any, source: Path, tmp_path: Path) -> None:
    done = slurm.run(*PLAIN, source, tmp_path / "{node}", "--path", "carrier-pigeon")
    assert done.returncode == 2
    assert len(said(done.stderr)) == 1
    assert "argument --path: invalid choice: 'carrier-pigeon'" in said(done.stderr)[0]


@pytest.mark.slow
@pytest.mark.parametrize("rank", slow_except([3], [0, 3]))
def test_a_rank_that_dies_while_the_others_are_in_finalize_ends_them(
    slurm: Any, source: Path, tmp_path: Path, rank: int
) -> None:
    """On another node, too; srun without ``--kill-on-bad-exit`` ends nobody for it."""
    killed = [*SRUN, sys.executable, PROGRAMS / "killed_at_finalize.py", rank, "-m", "staging"]
    done = slurm.run(*killed, source, tmp_path / "out" / "{node}", timeout_s=60)
    assert done.returncode == 137
    assert f"staging: aborted: rank {rank} on node{1 + rank // 2}: the process died" in done.stderr
    assert [contents(folder) for folder in nodes(tmp_path / "out")] == [contents(source)] * 2
