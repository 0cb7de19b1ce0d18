"""Jobs of the test's Slurm through the documented commands: submitting, following, and reading what they printed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.slurm.daemons import Slurm

ENDLESS = ("--train.target", "null", "--train.baselines", "false", "--train.page", "false")


def hpcbench(slurm: Slurm, *words: object, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """``hpcbench`` as a user calls it on a login node; the exit code is not judged."""
    return slurm.run(sys.executable, "-m", "hpcbench", *words, timeout_s=timeout_s)


def submit(
    slurm: Slurm, application: str, data: Path, run: Path, *more: object, site: str = "two-nodes", nodes: int = 2
) -> subprocess.CompletedProcess[str]:
    """``hpcbench submit`` at the preset ``smoke``."""
    words = ["submit", application, "--site", site, "--nodes", nodes, "--preset", "smoke", "--run-dir", run]
    return hpcbench(slurm, *words, "--data.root", data / application, *more)


def shown(slurm: Slurm, run: Path) -> str:
    """All that ``hpcbench jobs`` says of the job."""
    done = hpcbench(slurm, "jobs", run)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(slurm: Slurm, run: Path) -> str:
    """The same in one line, since long ones are wrapped."""
    return " ".join(shown(slurm, run).split())


def state(slurm: Slurm, run: Path) -> str:
    """The line of ``hpcbench jobs`` on the job, in which a long reason is cut."""
    return shown(slurm, run).splitlines()[2]


def job_id(run: Path) -> str:
    """The number of the job that was submitted."""
    return str(json.loads((run / "job.json").read_text())["job_id"])


def log(run: Path) -> str:
    """What the job has printed."""
    return "".join(path.read_text() for path in sorted(run.glob("job-*.log")))


def wait_until(condition: Callable[[], bool], run: Path, limit_s: float = 600) -> None:
    """Wait for a condition, else fail with what the job has printed."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, log(run)
        time.sleep(0.2)


def ended(slurm: Slurm, run: Path, limit_s: float = 900) -> str:
    """The line of ``hpcbench jobs`` once the job has left the queue."""
    number = job_id(run)
    # The queue is asked, which is light; the command of the suite starts a Python each time.
    wait_until(lambda: not queue_state(slurm, number), run, limit_s)
    found = state(slurm, run)
    assert "waiting" not in found, found
    assert "running" not in found, found
    return found


def queue_state(slurm: Slurm, number: str) -> str:
    """Slurm's own word for a job that has not ended, such as ``PENDING``; else nothing."""
    return slurm.run("squeue", "--noheader", "--format=%T", f"--jobs={number}").stdout.strip()


def nodes_of(slurm: Slurm, number: str) -> list[str]:
    """The nodes of a job that runs."""
    names = slurm.run("squeue", "--noheader", "--format=%N", f"--jobs={number}").stdout.strip()
    return slurm.run("scontrol", "show", "hostnames", names).stdout.split() if names else []


def rows(run: Path) -> int:
    """Rows of ``epochs.csv``."""
    epochs = run / "epochs.csv"
    return max(0, epochs.read_text().count("\n") - 1) if epochs.exists() else 0


def attempt_trains(run: Path, number: int) -> None:
    """Wait until an attempt of the job has begun and trained into an epoch."""
    wait_until(lambda: f"attempt {number}," in log(run), run)
    before = rows(run)
    wait_until(lambda: rows(run) > before, run)


def staged_files(local: Path) -> list[Path]:
    """What a job has left in node-local storage."""
    return [path for path in local.rglob("*") if path.is_file()]
