"""Starts trainings that are interrupted, and compares them with others that were not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from hpcbench.results.run_folder import RunFolder
from hpcbench.train.checkpoint_io import Checkpoint, load_newest

PROGRAM = Path(__file__).with_name("programs") / "interrupting.py"
TIMES = ["train_s", "eval_s", "elapsed_s", "samples_per_s"]


def plan(where: str, number: int, signal: str, *ranks: int, **more: Any) -> dict[str, Any]:
    """When the program sends itself which signal; with no ranks named, on all of them."""
    return {"where": where, "number": number, "signal": signal, **({"ranks": ranks} if ranks else {}), **more}


def attempts(*moments: dict[str, Any]) -> list[dict[str, Any]]:
    """Trainings one after the other, in processes of their own: exit codes, output and seconds of each."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "attempts", json.dumps(moments)], env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def launched(before: list[str], moment: dict[str, Any], words: list[str]) -> tuple[int, str]:
    """Exit code of the launcher, and what was printed."""
    done = subprocess.run(
        [*before, sys.executable, str(PROGRAM), "one", json.dumps(moment), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def newest(folder: Path) -> Checkpoint:
    """The newest checkpoint of a run."""
    found = load_newest(folder / "checkpoints")
    assert found is not None
    return found


def events(folder: Path) -> list[dict[str, Any]]:
    """The lines of the official log."""
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in (folder / "mllog.txt").read_text().splitlines()]


def same_run(folder: Path, whole: Path, tolerance: float = 0.0) -> None:
    """Rows, metrics and parameters of two runs agree; to the bit where no tolerance is given."""
    for table in ("steps", "epochs"):
        found, known = (
            pd.read_csv(getattr(RunFolder.open(each), table)).drop(columns=TIMES, errors="ignore")
            for each in (folder, whole)
        )
        pd.testing.assert_frame_equal(found, known, check_exact=tolerance == 0, rtol=tolerance, atol=tolerance)
    one, other = newest(folder), newest(whole)
    assert one.state["step"] == other.state["step"]
    for name, value in other.model.items():
        if tolerance == 0:
            assert torch.equal(one.model[name], value), name
        else:
            np.testing.assert_allclose(one.model[name], value, rtol=1e3 * tolerance, atol=1e3 * tolerance)
    for key in ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_error", "eval_accuracy"):
        numbers = [
            [event["metadata"]["epoch_num"] for event in events(each) if event["key"] == key]
            for each in (folder, whole)
        ]
        assert numbers[0] == numbers[1], key


def stopped_by(folder: Path, signal: str, step: int, late: int = 0) -> None:
    """The run in ``folder`` was ended by ``signal`` after ``step``, or ``late`` steps later, and says so everywhere."""
    summary = RunFolder.open(folder).read_summary()
    assert (summary.status, summary.cause, summary.signal) == ("aborted", "signal", signal)
    assert step <= summary.steps <= step + late
    assert newest(folder).state["step"] == summary.steps == len(RunFolder.open(folder).read_steps())
    assert events(folder)[-1]["key"] == "run_stop"
    assert events(folder)[-1]["metadata"]["cause"] == "signal"
    assert (folder / "report.html").stat().st_size > 1000
