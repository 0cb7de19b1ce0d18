"""A rank that stands still, in any phase, ends the run, and the report in the folder names it, its place and its stack.

Ranks are real processes under mpiexec or started as ``--parallel.devices`` does, over real collectives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.parallel.spawn import rank_environments
from tests.hpcbench.parallel.spawned import spawned

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).parent / "programs" / "hanging.py"
HANG_S = 3.0
LIMIT_S = 60.0
"""From the hang to the end; about 8 on an idle machine. Without the watch it is the 600 s of the collectives."""
PATIENCE_S = 240.0
"""For everything, imports too, on a machine that is kept busy by others."""

Ended = Callable[..., tuple[int, str, dict[str, Any]]]


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    """Run the program to its end: exit code, output and report. All its processes must be gone, in time."""

    def run(command: list[str], how: str, phase: str, rank: int, **more: str) -> tuple[int, str, dict[str, Any]]:
        words = [*command, str(PROGRAM), str(tmp_path), str(HANG_S), how, phase, str(rank)]
        done = subprocess.run(
            words, env=environ(**more), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        output = done.stdout + done.stderr
        began = [float(path.read_text()) for path in tmp_path.glob("hangs-*")]
        assert began, output
        assert time.time() - began[0] < LIMIT_S, output
        for pid in pids(tmp_path):
            assert not lives(pid), output
        report = tmp_path / "hang.json"
        assert report.exists(), output
        return done.returncode, output, json.loads(report.read_text())

    return run


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("rank-*")]


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent to look."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state in "ZX":
            return False
        time.sleep(0.1)
    return True


def check(report: dict[str, Any], rank: int, phase: str, reporter: int) -> dict[str, Any]:
    assert report["culprits"] == [rank]
    # Where a busy machine lets rank 0 answer late, its deputy reports.
    assert report["reporter"] in (reporter, 1)
    state = report["states"][rank]
    assert (state["rank"], state["phase"], state["node"]) == (rank, phase, "node0")
    assert state["step"] >= 5
    return state


PHASES = ("input_wait", "compute", "communication", "evaluation", "staging", "checkpoint")


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("phase", [PHASES[0], *(pytest.param(phase, marks=pytest.mark.slow) for phase in PHASES[1:])])
def test_the_last_rank_stopped(mpiexec: str, ended: Ended, phase: str, tmp_path: Path) -> None:
    ranks = 2 + PHASES.index(phase) % 2
    code, output, report = ended([mpiexec, "-n", str(ranks), sys.executable], "stop", phase, ranks - 1)
    assert code != 0
    state = check(report, ranks - 1, phase, reporter=0)
    assert state["silent"]
    assert state["stopped"]
    assert state["standing_s"] >= HANG_S
    assert f"hpcbench: aborted: rank {ranks - 1} on node0 stood still for" in output
    assert f"in {phase} (step {state['step']}), its process stopped; the stacks of the ranks are in " in output
    assert "resume with --resume" in output
    stacks = report["stacks"]
    assert "state T" in stacks[str(ranks - 1)]
    assert "its Python stack is not known" in stacks[str(ranks - 1)]
    assert "all_reduce_sum" in stacks["0"]
    assert "rank 1 on node0: " in (tmp_path / "hang.txt").read_text()
    assert "stood still" in (tmp_path / "aborted-0").read_text()


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_the_first_rank_stopped(mpiexec: str, ended: Ended, phase: str) -> None:
    ranks = 3 - PHASES.index(phase) % 2
    code, output, report = ended([mpiexec, "-n", str(ranks), sys.executable], "stop", phase, 0)
    assert code != 0
    state = check(report, 0, phase, reporter=1)
    assert state["silent"]
    assert state["stopped"]
    assert "hpcbench: aborted: rank 0 on node0 stood still for" in output


@pytest.mark.mpi
@pytest.mark.slow
def test_a_deputy_on_the_node_that_hangs_with_rank_0_is_not_chosen(mpiexec: str, ended: Ended) -> None:
    nodes = {"NODE_0": "node0", "NODE_1": "node0", "NODE_2": "node1"}
    _, _, report = ended([mpiexec, "-n", "3", sys.executable], "stop", "compute", 0, **nodes)
    check(report, 0, "compute", reporter=2)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_a_spawned_run_stopped(ended: Ended, rank: int) -> None:
    code, output, report = ended(spawned(2), "stop", "compute", rank)
    assert code == 1, output
    check(report, rank, "compute", reporter=1 - rank)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "rank"), [("sleep", 1), ("sleep", 0), ("fifo", 1), ("lock", 1)])
def test_a_main_thread_that_stands_is_named_with_its_line(ended: Ended, how: str, rank: int) -> None:
    _, output, report = ended(spawned(2), how, "input_wait", rank)
    state = check(report, rank, "input_wait", reporter=0)
    assert state["silent"] == (how == "lock")
    assert not state["stopped"]
    stack = report["stacks"][str(rank)]
    if how == "lock":
        lines = PROGRAM.read_text().splitlines()
        number = 1 + next(i for i, line in enumerate(lines) if "unlike a sleep" in line)
        assert f'hanging.py", line {number} in hang' in stack
        assert "its process not answering" in output
    else:
        assert "# stands here" in stack
    other = report["states"][1 - rank]
    assert other["waiting"]
    assert not state["waiting"]


@pytest.mark.slow
def test_one_process_stands_in_a_read(ended: Ended) -> None:
    code, output, report = ended([sys.executable], "fifo", "input_wait", 0)
    assert code == 1
    check(report, 0, "input_wait", reporter=0)
    assert "its stack is in " in output
    assert '(folder / "fifo").open().read()' in report["stacks"]["0"]


@pytest.mark.slow
def test_rank_0_and_its_deputy_stopped(tmp_path: Path) -> None:
    words = [*spawned(3, PROGRAM, tmp_path), "2", "sleep", "compute", "9"]
    process = subprocess.Popen(words, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_steps(tmp_path, process, 10, ranks=3)
        for rank in (0, 1):
            os.kill(int((tmp_path / f"rank-{rank}").read_text()), signal.SIGSTOP)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 1, output
    report = json.loads((tmp_path / "hang.json").read_text())
    assert (report["culprits"], report["reporter"]) == ([0, 1], 2)
    assert "hpcbench: aborted: rank 0 on node0 and 1 other rank stood still for" in output
    assert not any(map(lives, pids(tmp_path)))


@pytest.mark.slow
def test_under_torchrun_a_stopped_rank_is_killed(ended: Ended) -> None:
    # Its agent would ask it to end, and wait for half a minute.
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    code, _, report = ended(command, "stop", "compute", 1)
    assert code != 0
    check(report, 1, "compute", reporter=0)


@pytest.mark.slow
def test_ranks_that_were_stopped_together_go_on(tmp_path: Path) -> None:
    words = [*spawned(2, PROGRAM, tmp_path), "2", "sleep", "compute", "9"]
    process = subprocess.Popen(words, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_steps(tmp_path, process, 10)
        for number, pause_s in ((signal.SIGSTOP, 7.0), (signal.SIGCONT, 0.0)):
            for pid in pids(tmp_path):
                os.kill(pid, number)
            time.sleep(pause_s)
        now = steps(tmp_path)
        wait_for_steps(tmp_path, process, now + 200)
        time.sleep(2)
        assert process.poll() is None
        assert not (tmp_path / "hang.json").exists()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.slow
def test_a_rank_that_stands_for_less_than_its_bound_goes_on(tmp_path: Path) -> None:
    words = [*spawned(2, PROGRAM, tmp_path), "8", "stop", "compute", "1"]
    process = subprocess.Popen(words, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_steps(tmp_path, process, 5)
        for _ in range(3):
            # It stops itself again in every step.
            time.sleep(2.5)
            before = steps(tmp_path)
            os.kill(int((tmp_path / "rank-1").read_text()), signal.SIGCONT)
            wait_for_steps(tmp_path, process, before + 1)
        assert not (tmp_path / "hang.json").exists()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.slow
def test_an_orderly_end(tmp_path: Path) -> None:
    words = [*spawned(2, PROGRAM, tmp_path), "2", "nothing", "30", "0"]
    done = subprocess.run(words, env=environ(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "aborted" not in done.stdout + done.stderr


def steps(folder: Path, ranks: int = 2) -> int:
    found = [int(path.read_text() or 0) for path in folder.glob("step-*")]
    return min(found) if len(found) == ranks else 0


def wait_for_steps(folder: Path, process: subprocess.Popen[str], number: int, ranks: int = 2) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while steps(folder, ranks) < number:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_rank_environments_are_those_of_spawned_ranks() -> None:
    # What keeps the watch from killing: the parent does that, and counts whom it did not kill itself.
    assert rank_environments(1, {})[0]["HPCBENCH_SPAWNED"] == "1"
