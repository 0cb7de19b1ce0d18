"""A rank that ends before the ranks have met ends the others, instead of letting them wait for minutes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from hpcbench.parallel import group as groups
from hpcbench.parallel.spawn import rank_environments, run_ranks
from staging.errors import InputError
from staging.ranks.launch import Launch
from staging.ranks.siblings import Siblings
from tests.params import slow_except

PROGRAM = Path(__file__).parent / "programs" / "early.py"
SIGNALLED = Path(__file__).parent / "programs" / "signalled_before_torch.py"
ENDED = "1 of the 3 ranks of this node ended before all ranks had met, or could not be started; see what it printed"
LIMIT_S = 200
"""The imports take most of it, on a busy machine; without the watch it is 300, and for ever in MPI_Init."""
NOTICED_S = 15
"""From when the last rank has its imports done to when all have ended."""


def since_ready(printed: str) -> float:
    """Seconds since the last of the ranks was ready to meet, by what they printed; one clock holds for a machine."""
    return time.monotonic() - max(map(float, re.findall(r"ready ([0-9.]+)", printed)))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("rank", slow_except([0], [0, 1]))
def test_under_mpiexec(mpiexec: str, rank: int) -> None:
    # Without a signal, MPICH's launcher thinks nothing of it, and MPI_Init waits for ever.
    done = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, str(PROGRAM), str(rank)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert since_ready(done.stdout) < NOTICED_S
    assert done.returncode != 0
    assert done.stderr.count(f"error: {ENDED}") == 1


@pytest.mark.slow
@pytest.mark.mpi
def test_a_program_that_is_not_there(mpiexec: str) -> None:
    command = [mpiexec, "-n", "2", sys.executable, str(PROGRAM), "9", ":", "-n", "1", "/nowhere/python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert since_ready(done.stdout) < NOTICED_S
    assert done.returncode != 0
    assert done.stderr.count(f"error: {ENDED}") == 1


@pytest.mark.slow
@pytest.mark.parametrize("rank", slow_except([0], [0, 1]))
def test_spawned(rank: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    # The ranks end by themselves, before the process that started them ends them.
    monkeypatch.setattr("hpcbench.parallel.spawn.GRACE_S", 1000.0)
    other = subprocess.Popen(["sleep", "1000"])  # another child of their parent, which is none of them
    assert run_ranks([sys.executable, str(PROGRAM), str(rank)], rank_environments(3, os.environ)) == 7
    printed = capfd.readouterr()
    assert since_ready(printed.out) < NOTICED_S
    other.kill()
    other.wait()
    assert printed.err.count(f"error: {ENDED}") == 1


@pytest.mark.slow
@pytest.mark.mpi
def test_a_warning_between_mpi_init_and_the_training_is_not_lost(mpiexec: str, tmp_path: Path) -> None:
    command = [mpiexec, "-n", "2", sys.executable, str(SIGNALLED), "train", "cosmoflow", "--preset", "smoke"]
    words = ["--data.root", str(tmp_path), "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 138, done.stderr
    assert done.stderr.count("hpcbench: aborted: signal SIGUSR1") == 1
    assert not (tmp_path / "run").exists()


def test_under_an_unknown_parent_nothing_is_found() -> None:
    siblings = Siblings({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"})
    assert siblings.expected == 0
    siblings.check()


def test_a_store_that_goes_away() -> None:
    class Gone(HashStore):  # type: ignore[misc]
        def check(self, keys: list[str]) -> bool:
            raise RuntimeError("Connection was likely closed")

    with pytest.raises(InputError, match="rank 0 ended before all 2 ranks had met; see what it printed"):
        groups._check_in(Gone(), Launch(1, 2, 1, 2), timeout_s=5.0)
