"""Signals of a real Slurm: all ranks stop at one step, and srun returns 128 + the signal, not the 137 of an abort."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm.daemons import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]

PROGRAM = Path(__file__).parents[1] / "hpcbench" / "parallel" / "programs" / "voting.py"


def start(slurm: Slurm, name: str, *words: object) -> subprocess.Popen[str]:
    """Two nodes with a rank each, in a job called ``name``, started as job scripts do."""
    options = ["--mpi=pmi2", "--kill-on-bad-exit=1", f"--job-name={name}", "-N2", "-n2"]
    command = ["srun", *options, sys.executable, str(PROGRAM)]
    return subprocess.Popen(
        [*command, *map(str, words)], env=slurm.environ, cwd=slurm.scratch, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Exit code, lines of output in order, and error output."""
    try:
        output, error = process.communicate(timeout=90)
    finally:
        process.kill()
    return process.returncode, sorted(output.splitlines()), error


@pytest.mark.parametrize(("signal", "code"), [("USR1", 138), ("TERM", 143)])
def test_a_signal_to_the_job_stops_both_nodes_at_one_step(slurm: Slurm, signal: str, code: int) -> None:
    process = start(slurm, f"stop-{signal}", "serve")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    job = slurm.run("squeue", "--noheader", "--format=%i", f"--name=stop-{signal}").stdout.strip()
    assert slurm.run("scancel", f"--signal={signal}", job).returncode == 0
    time.sleep(0.5)
    slurm.run("scancel", f"--signal={signal}", job)  # the same one: rank 0 is writing
    ended, lines, error = end(process)
    assert ended == code, error
    steps = {re.fullmatch(rf"stopped rank \d: SIG{signal} at step (\d+)", line)[1] for line in lines[-2:]}  # type: ignore[index]
    assert len(steps) == 1
    assert f"test: signal SIG{signal}\n" in error


@pytest.mark.parametrize("who", [0, 1, -1])
@pytest.mark.parametrize(("signal", "code"), [("SIGUSR1", 138), ("SIGTERM", 143)])
def test_outside_the_loop_srun_returns_the_signals_code(slurm: Slurm, who: int, signal: str, code: int) -> None:
    ended, _, error = end(start(slurm, "outside", "outside", who, signal))
    assert ended == code, error
    assert f"rank {max(who, 0)}: Interrupted: signal {signal}" in error
    assert "MPI_Abort" not in error
