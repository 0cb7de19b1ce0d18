"""A machine with a scheduler that runs its jobs here, and a training of seconds in place of the real one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.batch.job_record import read_job
from hpcbench.batch.scheduler import JobStatus
from hpcbench.batch.submission import job_status
from hpcbench.cli.main import main

PROGRAMS = Path(__file__).parent / "programs"
COMMANDS = {
    "slurm": ("sbatch", "squeue", "sacct", "scontrol", "scancel"), "pbs": ("qsub", "qstat", "qselect", "qdel"),
    "lsf": ("bsub", "bjobs", "bkill"), "flux": ("flux",),
}  # fmt: skip
LAUNCHER = f"""\
while [ "$1" != -m ]; do shift; done
case "$3${{REAL:-}}" in
train) shift 3; exec {sys.executable} {PROGRAMS / "fake_training.py"} "$@" ;;
*) exec {sys.executable} "$@" ;;
esac
"""
SCHEDULER = f'exec {sys.executable} -IS {PROGRAMS / "fake_scheduler.py"} "$(basename "$0")" "$@"\n'
ENDED = ("done", "failed", "cancelled", "time limit", "preempted", "lost")
LIMIT_S = 240.0


def read_lines(path: Path) -> list[str]:
    """Lines of a file, which need not be there yet."""
    return path.read_text().splitlines() if path.exists() else []


class Machine:
    """One scheduler; ``state`` is where it keeps its jobs, and where trouble is made."""

    def __init__(self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.folder, self.state = kind, folder, folder / "fake"
        for path in (folder / "bin", self.state / "jobs", self.state / "kills"):
            path.mkdir(parents=True)
        scripts = dict.fromkeys(COMMANDS[kind], SCHEDULER) | dict.fromkeys(("srun", "mpiexec", "mpirun"), LAUNCHER)
        if kind == "flux":
            scripts["flux"] = f'if [ "$1" = run ]; then\n{LAUNCHER}fi\n{SCHEDULER}'
        scripts["python"] = f'exec {sys.executable} "$@"\n'
        for name, text in scripts.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}")
            (folder / "bin" / name).chmod(0o755)
        # Jobs look for their launcher beside their Python first.
        monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("FAKE", str(self.state))
        monkeypatch.setenv("FAKE_SAVE_S", "0.1")

    def submit(self, run: Path, *more: str) -> int:
        """``hpcbench submit`` as documented; the exit code."""
        words = ["submit", "cosmoflow", "--site", f"generic-{self.kind}", "--cores-per-rank", "1", "--no-stage"]
        return main([*words, "--run-dir", str(run), "--data.root", str(self.folder), *more])

    def trouble(self, name: str, text: str = "") -> Path:
        """Make trouble; the file that stands for it."""
        (self.state / name).write_text(text)
        return self.state / name

    def ended(self, run: Path) -> JobStatus:
        """Wait until the run's job, and all that continue it, have ended; the last status."""
        return self.wait(run, *ENDED)

    def wait(self, run: Path, *states: str) -> JobStatus:
        """Wait for one of these states."""
        deadline = time.monotonic() + LIMIT_S
        while (found := job_status(read_job(run))).state not in states:
            assert time.monotonic() < deadline, f"{found}\n{self.log(run)}"
            time.sleep(0.1)
        return found

    def wait_for(self, path: Path, run: Path) -> None:
        """Wait until there is a file."""
        deadline = time.monotonic() + LIMIT_S
        while not path.exists():
            assert time.monotonic() < deadline, f"{job_status(read_job(run))}\n{self.log(run)}"
            time.sleep(0.05)

    def trained(self, run: Path, attempt: int) -> int:
        """Wait until the training of an attempt has taken a step; its process."""
        rows = run / "steps.csv"
        before, deadline = len(read_lines(rows)), time.monotonic() + LIMIT_S
        while True:
            trainings = read_lines(self.state / "trainings")
            if len(trainings) >= attempt and len(read_lines(rows)) > before:
                return int(trainings[attempt - 1].split()[1])
            assert time.monotonic() < deadline, self.log(run)
            time.sleep(0.02)

    def interrupt(self, run: Path, attempt: int, number: signal.Signals = signal.SIGUSR1) -> None:
        """Send a signal to the training of an attempt once it has taken a step, as at the end of its time."""
        os.kill(self.trained(run, attempt), number)

    def saved(self, run: Path, step: int) -> None:
        """Wait until there is a checkpoint of this step or a later one."""
        deadline = time.monotonic() + LIMIT_S
        while not any(int(path.stem[-8:]) >= step for path in (run / "checkpoints").glob("*.json")):
            assert time.monotonic() < deadline, self.log(run)
            time.sleep(0.02)

    def lose_node(self, number: int, *, restarts: bool = True) -> None:
        """Kill all of a job, as when its node dies or is needed for another; whether the scheduler ``restarts`` it."""
        job = self.state / "jobs" / str(number)
        if restarts:
            (job / "requeue").write_text("yes")
        self._kill_session(job)

    def _kill_session(self, job: Path) -> None:
        session = (job / "session").read_text()
        own = subprocess.run(["ps", "-o", "pid=", "--sid", session], capture_output=True, text=True, check=False)
        for each in own.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGKILL)

    def log(self, run: Path) -> str:
        """What all jobs of a run printed."""
        return "".join(f"-- {path.name}\n{path.read_text()}" for path in sorted(run.glob("job-*.log")))

    def together(self) -> str:
        """Which trainings found another one at work in their folder."""
        path = self.state / "together"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        """Kill all that is left of jobs."""
        for job in (self.state / "jobs").iterdir():
            (job / "state").write_text("cancelled")
            with contextlib.suppress(FileNotFoundError):
                self._kill_session(job)
