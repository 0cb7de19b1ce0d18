"""Scripts and submissions killed at random instants, on schedulers that are slow, fail, and lose answers.

The user does what the pages say: looks, and submits again what has ended before its time. In the end each run has come
to its end, and at no time did two trainings work in one folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.batch import submission
from hpcbench.batch.holding import HeldError, move_aside
from hpcbench.batch.job import make_job
from hpcbench.batch.job_record import RECORD, is_unused, read_job
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.site import find_site
from hpcbench.batch.submission import job_status, submit
from staging.errors import InputError
from tests.hpcbench.batch.executing import COMMANDS, ENDED, Machine, read_lines

STEPS = 4
LIMIT_S = 1500.0


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(submission, "SETTLED_S", 3.0)
    monkeypatch.setenv("FAKE_STEPS", str(STEPS))
    made = Machine(request.param, tmp_path, monkeypatch)
    (tmp_path / "bin" / "sleep").write_text("#!/bin/bash\nexec /bin/sleep 0.3\n")
    (tmp_path / "bin" / "sleep").chmod(0o755)
    yield made
    made.end()


class User:
    """Who wants some runs done, and whose commands are killed now and then."""

    def __init__(self, machine: Machine, runs: list[Path], dice: random.Random) -> None:
        self.machine, self.runs, self.dice = machine, runs, dice
        self.by_hand = 0

    def submit(self, run: Path) -> None:
        """Submit, in a process that is killed at a random instant one time in three."""
        site = find_site(f"generic-{self.machine.kind}")
        request = JobRequest(cores_per_rank=1, attempts=1000)
        job = make_job(site, request, run, (sys.executable, "-m", "hpcbench"), ("cosmoflow",), "a title", stages=False)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(InputError):
                submit(job, site)
            os._exit(0)
        if self.dice.random() < 1 / 3:
            time.sleep(self.dice.uniform(0, 0.2))
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def look(self, run: Path) -> bool:
        """Look at a run, and do what is due; whether it is done."""
        if is_unused(run) and not (run / RECORD).exists():
            self.submit(run)
            return False
        try:
            state = job_status(read_job(run)).state
        except InputError:  # no record, or the folder has just been moved
            state = "lost"
        if state == "done":
            return True
        if state in ENDED:
            number = 1 + len(list(run.parent.glob(f"{run.name}.failed-*")))
            with contextlib.suppress(HeldError, FileNotFoundError):
                move_aside(run, run.with_name(f"{run.name}.failed-{number}"))
                self.submit(run)
        elif state == "running" and self.dice.random() < 0.1:
            self.submit_by_hand(run)
        return False

    def submit_by_hand(self, run: Path) -> None:
        """One more job of the same folder, which nobody needs."""
        words = {"slurm": ["sbatch", "--parsable", "job.sh"], "pbs": ["qsub", "job.sh"], "lsf": ["bsub"],
                 "flux": ["flux", "batch", "job.sh"]}[self.machine.kind]  # fmt: skip
        with contextlib.suppress(FileNotFoundError), (run / "job.sh").open() as text:
            subprocess.run(words, cwd=run, stdin=text, capture_output=True, check=False)
            self.by_hand += 1

    def make_trouble(self) -> None:
        """Now and then the scheduler does not answer, is slow, refuses, or loses an answer."""
        self.machine.trouble("lost", str(int(self.dice.random() < 0.1)))
        self.machine.trouble("refuses", str(int(self.dice.random() < 0.1)))
        for name, text in (("down", ""), ("slow", "0.2")):
            path = self.machine.trouble(name, text)
            if self.dice.random() > 0.1:
                path.unlink()


def kill_and_finish(machine: Machine, folder: Path, kills: int, at_once: int) -> None:
    """Some runs at once, until so many scripts were killed: all come to their end, one training at a time."""
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    user = User(machine, [], dice)
    calm = folder / "runs" / "calm"
    while not user.look(calm):
        time.sleep(0.05)
    machine.wait_for(machine.state / "jobs" / "1" / "life_s", calm)
    life_s = float((machine.state / "jobs" / "1" / "life_s").read_text())
    for number in range(2, 10 * kills):
        (machine.state / "kills" / str(number)).write_text(str(dice.uniform(0, life_s)))
    left: list[Path] = []
    deadline = time.monotonic() + LIMIT_S
    while left or len(read_lines(machine.state / "killed")) < kills:
        assert time.monotonic() < deadline, "\n".join(machine.log(run) for run in left)
        if len(read_lines(machine.state / "killed")) >= kills:
            for path in (machine.state / "kills").iterdir():
                path.unlink()
        elif len(left) < at_once:
            user.runs.append(folder / "runs" / f"run{len(user.runs)}")
            left.append(user.runs[-1])
        user.make_trouble()
        left = [run for run in left if not user.look(run)]
        time.sleep(0.1)
    for name in ("down", "slow", "lost", "refuses"):
        (machine.state / name).unlink(missing_ok=True)
    assert not machine.together(), seed
    trainings = len(read_lines(machine.state / "trainings"))
    print(f"{(machine.state / 'begun').read_text()} starts, {user.by_hand} jobs by hand, {trainings} trainings")
    for run in user.runs:
        steps = [int(line.split(",")[1]) for line in read_lines(run / "steps.csv")[1:]]
        assert max(steps) == STEPS, seed


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["pbs"], indirect=True)
def test_a_script_killed_at_a_random_instant(machine: Machine, tmp_path: Path) -> None:
    kill_and_finish(machine, tmp_path, kills=1, at_once=1)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [6, pytest.param(13, marks=pytest.mark.long)])
@pytest.mark.parametrize("machine", list(COMMANDS), indirect=True)
def test_scripts_killed_at_random_instants(machine: Machine, kills: int, tmp_path: Path) -> None:
    """With ``--long``, of all schedulers together at more than 50."""
    kill_and_finish(machine, tmp_path, kills, at_once=4)
