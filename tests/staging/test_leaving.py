"""Ranks of mpiexec that end one after the other: all of them have left by themselves, and none is killed for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "late_to_leave.py"


@pytest.mark.mpi
@pytest.mark.parametrize("code", [0, 138])
def test_a_rank_that_leaves_later_than_others_is_not_killed(mpiexec: str, code: int) -> None:
    command = [mpiexec, "-n", "3", sys.executable, PROGRAM, "0.3", str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "left\n" * 3)
