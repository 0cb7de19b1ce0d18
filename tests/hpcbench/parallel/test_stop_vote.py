"""A signal on any rank stops all at the same step, and the launcher returns 128 + its number."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpcbench.parallel import stop_vote
from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.spawn import rank_environments
from hpcbench.parallel.stop_vote import StopVote
from staging.ranks.launch import Launch
from tests.hpcbench.parallel.spawned import spawned
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).parent / "programs" / "voting.py"
ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(command: list[str], *words: object) -> subprocess.Popen[str]:
    """The program under a launcher, in a process group of its own as a shell would start it."""
    command = [*command, str(PROGRAM), *map(str, words)]
    return subprocess.Popen(
        command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def end(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Exit code, lines of output in order, and error output."""
    try:
        output, error = process.communicate(timeout=90)
    finally:
        process.kill()
    return process.returncode, sorted(output.splitlines()), error


def until_ready(process: subprocess.Popen[str], ranks: int) -> None:
    """Wait until all ranks have come to work."""
    assert process.stdout is not None
    for _ in range(ranks):
        assert process.stdout.readline() == "ready\n"


def test_one_process_needs_no_vote() -> None:
    vote = StopVote(connect(Launch(), torch.device("cpu")))
    assert vote.poll(None) is None
    assert vote.poll(signal.SIGUSR1) == signal.SIGUSR1
    assert vote.agree_min(3.5) == 3.5
    assert vote.close() is None
    vote.poll(None, full=True)
    assert vote.any_full


@pytest.mark.parametrize(("signals", "full", "stop", "any_full"), [
    ((None, None), (False, False), None, False),
    ((None, None), (False, True), None, True),
    ((None, signal.SIGINT), (True, False), signal.SIGINT, False),
    ((signal.SIGTERM, signal.SIGUSR1), (False, True), signal.SIGTERM, False),
])  # fmt: skip
def test_a_vote_says_whether_a_rank_is_full_unless_all_stop(
    signals: tuple[int | None, ...], full: tuple[bool, ...], stop: int | None, any_full: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The ranks cast their votes one after the other here, and the last one has the largest."""
    cast: list[torch.Tensor] = []

    def all_reduce(vote: torch.Tensor, **_: object) -> SimpleNamespace:
        cast.append(vote)
        vote.copy_(torch.stack(cast).max())
        return SimpleNamespace(wait=lambda: None)

    fake = SimpleNamespace(new_group=lambda **_: None, all_reduce=all_reduce, ReduceOp=stop_vote.dist.ReduceOp)
    monkeypatch.setattr(stop_vote, "dist", fake)
    votes = [StopVote(Group(Launch(rank=rank, world_size=2), torch.device("cpu"), None)) for rank in range(2)]
    for vote, received, is_full in zip(votes, signals, full, strict=True):
        assert vote.poll(received, full=is_full) is None
        assert not vote.any_full
    assert (votes[1].poll(None), votes[1].any_full) == (stop, any_full)


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_signals_of_any_ranks_at_any_time_stop_all_at_the_same_step(mpiexec: str, ranks: int) -> None:
    code, lines, error = end(start([mpiexec, "-n", str(ranks), sys.executable], "rounds", time.time_ns() % 10_000))
    lines = [line for line in lines if line.startswith("round")]
    assert len(lines) == 10 * ranks, error
    for number in range(10):
        stops = [line.split(": ")[1] for line in lines if line.startswith(f"round {number} ")]
        assert len(stops) == ranks
        assert len(set(stops)) == 1
    name = lines[-1].split(": ")[1].split()[0]
    assert code == 128 + signal.Signals[name]
    assert error == f"test: signal {name}\n"


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("number", "again"), [(signal.SIGUSR1, signal.SIGUSR1), (signal.SIGTERM, signal.SIGUSR1)])
def test_what_the_launcher_passes_on_ends_all_when_rank_0_is_done(
    mpiexec: str, number: signal.Signals, again: signal.Signals
) -> None:
    process = start([mpiexec, "-n", "2", sys.executable], "serve")
    until_ready(process, 2)
    process.send_signal(number)
    time.sleep(0.7)
    process.send_signal(again)  # the same one; rank 0 is writing
    code, lines, error = end(process)
    assert code == 128 + number
    assert lines[:2] == [f"page of rank {rank}: signal {number.name}" for rank in range(2)]
    steps = {re.fullmatch(rf"stopped rank \d: {number.name} at step (\d+)", line)[1] for line in lines[2:]}  # type: ignore[index]
    assert len(steps) == 1
    assert error == f"test: signal {number.name}\n"


@pytest.mark.slow
def test_ranks_that_were_started_here_leave_with_the_signals_code() -> None:
    process = start(spawned(2), "serve")
    until_ready(process, 2)
    process.send_signal(signal.SIGUSR1)
    code, _, error = end(process)
    assert code == 128 + signal.SIGUSR1
    assert error == "test: signal SIGUSR1\n"


@pytest.mark.parametrize("who", slow_except([1], [0, 1, -1]))
@pytest.mark.slow
def test_outside_the_loop_all_ranks_leave_with_the_code_of_the_one_that_got_a_signal(who: int) -> None:
    environs = [{**ENVIRON, **environ} for environ in rank_environments(3, os.environ)]
    command = [sys.executable, str(PROGRAM), "outside", str(who), "SIGTERM"]
    ranks = [subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) for environ in environs]
    try:
        errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [143] * 3
    said = [line for line in "".join(errors).splitlines() if line.startswith("test: ")]
    assert said == [f"test: aborted: rank {max(who, 0)}: Interrupted: signal SIGTERM"]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("who", slow_except([1], [0, 1, -1]))
def test_outside_the_loop_under_mpiexec(mpiexec: str, who: int) -> None:
    code, _, error = end(start([mpiexec, "-n", "2", sys.executable], "outside", who, "SIGUSR1"))
    assert code == 128 + signal.SIGUSR1
    assert f"test: aborted: rank {max(who, 0)}: Interrupted: signal SIGUSR1" in error
