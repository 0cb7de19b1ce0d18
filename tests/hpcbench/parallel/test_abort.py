"""One rank raises or is killed, and all ranks are gone within ten seconds, with a reason and a non-zero exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.parallel.spawn import rank_environments
from tests.hpcbench.parallel.spawned import spawned

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).parent / "programs" / "failing.py"
LIMIT_S = 10.0


def fail(command: list[str], how: str, who: int) -> tuple[int, str, float]:
    """Exit code, output, and seconds from the failure to the end."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(PROGRAM), how, str(who)], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    output = done.stdout + done.stderr
    started = max(float(line.split()[1]) for line in output.splitlines() if line.startswith("TIME "))
    return done.returncode, output, time.time() - started


@pytest.mark.slow
def test_an_exception_on_one_rank_ends_all() -> None:
    code, output, seconds = fail(spawned(2), "raise", 1)
    assert code == 1
    assert seconds < LIMIT_S
    assert "log of rank 0: rank 1: RuntimeError: the reactor leaks" in output
    assert "hpcbench: aborted: rank 1: RuntimeError: the reactor leaks" in output
    assert "Traceback" in output


def test_a_killed_rank_ends_all() -> None:
    code, output, seconds = fail(spawned(2), "kill", 1)
    assert code == 128 + signal.SIGKILL
    assert seconds < LIMIT_S
    assert "hpcbench: aborted: rank 1: the process died without a word" in output
    assert "log of rank 0: rank 1: the process died" in output


@pytest.mark.slow
def test_a_killed_rank_0_ends_all() -> None:
    code, output, seconds = fail(spawned(2), "kill", 0)
    assert code == 128 + signal.SIGKILL
    assert seconds < LIMIT_S
    assert "hpcbench: aborted: rank 0: the process died without a word" in output


@pytest.mark.slow
def test_bad_input_on_one_rank_keeps_its_exit_code() -> None:
    code, output, seconds = fail(spawned(2), "input", 1)
    assert code == 2
    assert seconds < LIMIT_S
    assert "log of rank 0: rank 1: InputError: the file is cut short" in output


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("how", "who"), [("raise", 1), ("raise", 0), ("kill", 1), ("kill", 0)])
def test_under_mpiexec(mpiexec: str, how: str, who: int) -> None:
    code, output, seconds = fail([mpiexec, "-n", "3", sys.executable], how, who)
    assert code != 0
    assert seconds < LIMIT_S
    if how == "raise":
        assert "the reactor leaks" in output


@pytest.mark.slow
def test_an_orderly_end_is_no_failure() -> None:
    code, output, _ = fail(spawned(2), "nothing", 9)
    assert code == 0
    assert "aborted" not in output


def test_rank_environments_hide_other_launchers() -> None:
    outer = {"PATH": "/bin", "PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "0", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
    environs = rank_environments(2, outer)
    assert [environ["RANK"] for environ in environs] == ["0", "1"]
    assert {"PATH", "SLURM_JOB_ID", "HPCBENCH_SPAWNED"} <= set(environs[0])
    assert not {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"} & set(environs[0])
    assert environs[0]["MASTER_PORT"] == environs[1]["MASTER_PORT"]
