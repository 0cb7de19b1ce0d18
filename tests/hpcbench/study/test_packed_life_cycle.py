"""Packed jobs of a convergence study on schedulers that run their scripts for real: warned, continued, reported."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.batch.holds import read_holds
from hpcbench.cli.main import main
from hpcbench.results.attempts import Attempts
from tests.hpcbench.batch.executing import LIMIT_S, Machine

pytestmark = pytest.mark.slow
NAMES = ["b4-sgd-x1-seed1", "b8-sgd-x1-seed1"]


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(request.param, tmp_path, monkeypatch)
    yield made
    made.end()


def wait_until(condition: Callable[[], bool], machine: Machine, job: Path) -> None:
    """Wait for a condition, else fail with what the job has printed."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, machine.log(job)
        time.sleep(0.1)


def epochs(run: Path) -> int:
    """Rows of ``epochs.csv``."""
    path = run / "epochs.csv"
    return max(0, path.read_text().count("\n") - 1) if path.exists() else 0


@pytest.mark.parametrize(
    "machine", ["pbs", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("lsf", "flux"))], indirect=True
)
def test_runs_packed_in_a_job_that_is_warned_are_continued_by_the_next_one(
    machine: Machine, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    job, runs = study / "jobs" / "0001", [study / "runs" / name for name in NAMES]
    words = ["study", "convergence", "cosmoflow", "--preset", "smoke", "--site", f"generic-{machine.kind}"]
    words += ["--cores-per-rank", "1", "--runs-per-job", "2", "--batch-sizes", "4,8", "--optimizers", "sgd"]
    words += ["--seeds", "1", "--study-dir", str(study), "--data.root", str(small_cosmos)]
    assert main([*words, "--train.target", "0.000001", "--train.max_epochs", "16"]) == 0
    # What the script's `timeout` does before the time limit: a signal to what the launcher runs.
    wait_until(lambda: any(epochs(run) > 1 for run in runs), machine, job)
    os.kill(int((job / ".lock").read_text().split()[1]), signal.SIGUSR1)
    assert machine.ended(job).state == "done", machine.log(job)
    assert [(hold.job_id.partition(".")[0], hold.attempt) for hold in read_holds(job)] == [("1", 1), ("2", 2)]
    assert "was stopped by SIGUSR1; continued" in machine.log(job)
    attempts = [[each.cause for each in Attempts.read(run).attempts] for run in runs]
    assert ["signal", "epochs"] in attempts
    assert [causes[-1] for causes in attempts] == ["epochs", "epochs"]
    assert [epochs(run) for run in runs] == [16, 16]
    assert len(list((study / "jobs").iterdir())) == 1
    capsys.readouterr()
    assert main(["study", "status", str(study)]) == 0
    shown = capsys.readouterr().out
    assert "runs: 2 missed, 0 left" in shown
    assert "node-hours used: " in shown
    assert "in 2 attempts of 1 job" in shown
    assert main(["study", "report", str(study)]) == 0
    assert sorted(pd.read_csv(study / "results.csv").batch) == [4, 8]
