"""A resumed run knows that it was resumed, also where nothing is recorded of the attempts before, or of one's work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.results.attempts import Attempts
from hpcbench.results.attempts_table import attempts_table
from hpcbench.results.phase_table import attempts_of_ranks
from hpcbench.results.run_folder import RunFolder
from hpcbench.train import run
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.test_rank_metrics import TWO, Counter, counter

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


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A run in this process that a signal ends keeps its handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


def test_an_attempt_that_ends_before_its_clock_takes_no_energy_and_leaves_that_of_the_others(
    train: Train, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, epoch_j = tmp_path / "run", 12 * 7 + 100
    assert train(folder, *TWO, *NEVER, "--train.max_epochs", "1") == 3

    def interrupt(*parts: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(run, "drop_caches", interrupt)
        assert train(folder, "--resume", "--train.max_epochs", "2") == 128 + signal.SIGTERM
    summary = RunFolder.open(folder).read_summary()
    assert (summary.energy_j, summary.energy_note) == (epoch_j, "node of 1 node, over 2 attempts")
    assert train(folder, "--resume", "--train.max_epochs", "2") == 3
    summary = RunFolder.open(folder).read_summary()
    assert (summary.energy_j, summary.energy_note) == (2 * epoch_j, "node of 1 node, over 3 attempts")
    assert (summary.resumed, [each.energy_j for each in Attempts.read(folder).attempts]) == (2, [epoch_j, 0, epoch_j])
