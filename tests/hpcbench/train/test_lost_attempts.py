"""A resumed run knows that it was resumed, also where nothing is recorded of the attempts before, or of one's work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.results.attempts import Attempts
from hpcbench.results.attempts_table import attempts_table
from hpcbench.results.phase_table import attempts_of_ranks
from hpcbench.results.run_folder import RunFolder
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.test_rank_metrics import Counter, counter

pytestmark = pytest.mark.usefixtures("forked_processes")

__all__ = ["counter"]

Train = Callable[..., int]
NEVER = ("--train.target", "1e-9")
KILLED = """
import os, sys
from hpcbench.cli.main import main
from hpcbench.train.attempt_recorder import AttemptRecorder
AttemptRecorder.collect = lambda *parts, **more: os.kill(os.getpid(), 9)
main(sys.argv[1:])
"""
"""A run that is killed when its first checkpoint is complete, and nothing is recorded yet."""


def test_a_run_that_was_killed_before_its_first_record_was_resumed(
    cosmos: Path, train: Train, counter: Counter, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    words = arguments(cosmos, folder, "--train.max_epochs", "2", "--train.checkpoint_async", "false")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *words], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert not (folder / "attempts.json").exists()
    assert train(folder, "--resume") == 0
    lost, last = Attempts.read(folder).attempts
    assert (lost.first_step, lost.last_step, lost.cause, lost.wall_s) == (0, 3, None, 0.0)
    assert (last.first_step, last.last_step, last.cause) == (3, 6, "epochs")
    assert (lost.energy_j, last.energy_j is None) == (None, False)
    summary = RunFolder.open(folder).read_summary()
    assert (summary.resumed, summary.energy_j) == (1, None)
    assert summary.energy_note == "not measured: attempts.json has nothing of the first 3 steps"
    assert summary.wall_s == pytest.approx(last.wall_s)
    assert summary.time_to_solution_s < summary.wall_s + summary.gaps_s
    assert attempts_of_ranks(Attempts.read(folder), 1) == range(1, 2), "ranks.csv has the last attempt alone"
    assert [line["ended"] for line in attempts_table(Attempts.read(folder))["lines"]] == [
        "not recorded", "all epochs trained",
    ]  # fmt: skip


def test_a_run_whose_record_was_removed_was_resumed_as_often_as_its_checkpoint_says(
    train: Train, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    for number in (1, 2, 3):
        (folder / "attempts.json").unlink(missing_ok=True)
        assert train(folder, *(NEVER if number == 1 else ("--resume",)), "--train.max_epochs", str(number)) == 3
    assert RunFolder.open(folder).read_summary().resumed == 2
