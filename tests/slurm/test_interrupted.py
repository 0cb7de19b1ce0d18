"""Trainings on two nodes of a real Slurm: one that the scheduler signals, and one in which a rank hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.interrupted import PROGRAM, plan, stopped_by
from tests.slurm.daemons import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]


def start(slurm: Slurm, name: str, pace: dict[str, Any], words: list[str]) -> subprocess.Popen[str]:
    """A training on two nodes in a job called ``name``."""
    command = ["srun", "--mpi=pmi2", f"--job-name={name}", "-N2", "-n2", sys.executable, str(PROGRAM), "one"]
    return subprocess.Popen(
        [*command, json.dumps(pace), *words], env=slurm.environ, cwd=slurm.scratch, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_a_signal_of_the_scheduler_stops_a_run_that_then_continues(
    slurm: Slurm, datasets: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    settings = ("--train.target", "1e-9", "--train.local_batch_size", "2", "--train.max_epochs", "1000")
    process = start(slurm, "train", {"sleep_s": 0.2}, arguments(datasets / "cosmoflow", folder, *settings))
    try:
        deadline = time.monotonic() + 150
        while not (folder / "attempts.json").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(0.5)  # into the second epoch
        job = slurm.run("squeue", "--noheader", "--format=%i", "--name=train").stdout.strip()
        assert slurm.run("scancel", "--signal=USR1", job).returncode == 0
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 138, said
    assert "aborted: signal SIGUSR1" in said
    stopped_by(folder, "SIGUSR1", 1, late=10**6)
    epochs = json.loads((folder / "summary.json").read_text())["epochs"]
    more = ("--resume", "--train.max_epochs", str(int(epochs) + 1))
    process = start(slurm, "more", {}, arguments(datasets / "cosmoflow", folder, *more))
    try:
        said, _ = process.communicate(timeout=150)
    finally:
        process.kill()
    assert process.returncode == 3, said
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["resumed"], summary["epochs"], summary["cause"]) == (1, int(epochs) + 1, "epochs")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_ends_the_job_step(rank: int, slurm: Slurm, datasets: Path, tmp_path: Path) -> None:
    """Nobody waits for the time limit of the job, and the run goes on from its last checkpoint."""
    folder, job = tmp_path / "run", f"hang{rank}"
    settings = ("--train.target", "1e-9", "--train.local_batch_size", "2", "--parallel.hang_s", "4")
    words = arguments(datasets / "cosmoflow", folder, *settings, "--train.max_epochs", "2")
    process = start(slurm, job, plan("step", 40, "SIGSTOP", rank), words)
    try:
        said, _ = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode not in (0, 2, 3), said
    assert f"aborted: rank {rank} on node{rank + 1}" in said
    assert "its process stopped" in said
    assert f"rank {rank} on node{rank + 1}" in (folder / "hang.txt").read_text().splitlines()[0]
    deadline = time.monotonic() + 60  # the scheduler, too, needs its time to see that all have ended
    while (held := slurm.run("squeue", "--noheader", f"--name={job}").stdout) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert held == ""
    process = start(slurm, job, {}, arguments(datasets / "cosmoflow", folder, "--resume"))
    try:
        said, _ = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 3, said
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["resumed"], summary["epochs"], summary["cause"]) == (1, 2, "epochs")
