"""Studies killed while a queue runs their jobs for real, and is slow, fails, is down, refuses, or loses an answer.

The user gives the command again under the same trouble, and then until all runs are done. Each of them is trained
exactly once.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hpcbench.batch import submission
from hpcbench.batch.holds import read_holds
from hpcbench.cli.main import main
from hpcbench.results.attempts import Attempts
from hpcbench.study.folder import StudyFolder
from hpcbench.study.study_jobs import study_statuses
from tests.hpcbench.batch.executing import COMMANDS, LIMIT_S, Machine, read_lines
from tests.hpcbench.batch.waiting_slurm import changes, killed, watched

RUNS = ("n0001-r1", "n0002-r1")
TROUBLES = {"calm": "", "slow": "0.3", "lost": "1", "refuses": "1", "down": "", "denies": "", "silent": ""}
"""Files of the fake scheduler, and what they hold; the last two are here."""
HEADS = {
    "sbatch": """\
if rm "$FAKE/denies" 2> /dev/null; then
    echo "sbatch: error: Batch job submission failed: Invalid qos specification" >&2
    exit 1
fi
""",
    "squeue": """\
if [ -e "$FAKE/silent" ]; then
    echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2
    exit 1
fi
""",
}
"""Slurm refuses the next job, or takes jobs and cannot be asked about them."""
AT_ONCE = len(TROUBLES)
Kill = Callable[[Callable[[], object]], float | None]
"""Runs a command in a child, and kills it; how many changes or seconds it took where it ended before that."""


class User:
    """Who wants ladders of two sizes, and whose commands are killed."""

    def __init__(self, machine: Machine, folder: Path, data: Path) -> None:
        self.machine, self.folder, self.data = machine, folder, data
        self.studies: list[Path] = []
        self.met = 0
        self.dice = random.Random(7)

    def start(self, folder: Path) -> int:
        """Begin a study, or continue it by the same command."""
        words = ["study", "strong", "cosmoflow", "--preset", "smoke", "--site", f"generic-{self.machine.kind}"]
        words += ["--nodes", "1,2", "--repeats", "1", "--steps", "9", "--no-stage", "--train.local_batch_size", "2"]
        return main([*words, "--cores-per-rank", "1", "--data.root", str(self.data), "--study-dir", str(folder)])

    def resume(self, folder: Path) -> int:
        """Continue a study."""
        return main(["study", "resume", str(folder)])

    def prepared(self, name: str, cut: int) -> Path:
        """The folder of another study; with ``cut``, its first command was killed before that change."""
        self.studies.append(self.folder / name)
        if cut:
            assert killed(lambda: self.start(self.studies[-1]), cut)
        return self.studies[-1]

    def meet(self, trouble: str, kill: Kill, cut: int) -> float | None:
        """Have a command killed in trouble, and give one more in the same; what the kill returned.

        Some studies are at work at once.
        """
        self.met += 1
        path = self.prepared(f"study-{self.met}-{trouble}", cut)
        if cut and self.dice.random() < 0.5:  # in others the job may still wait
            self.machine.wait_for(path / "runs" / RUNS[0] / "steps.csv", path / "runs" / RUNS[0])
        self.machine.trouble(trouble, TROUBLES[trouble])
        end = kill(lambda: self.resume(path) if cut else self.start(path))
        made = self.machine.trouble(trouble, TROUBLES[trouble])
        assert self.go_on(path) in (0, 2)
        made.unlink(missing_ok=True)
        if len(self.studies) >= AT_ONCE:
            self.finish()
        return end

    def die(self, trouble: str, end: float, at: Callable[[float], Kill], cut: int) -> None:
        """Have a command killed in trouble before its end there, which is no later than ``end`` or drawn again."""
        left: float | None = end
        while left is not None:
            left = self.meet(trouble, at(left), cut)

    def at_change(self, last: float) -> Kill:
        """A kill at one of so many changes."""
        return partial(watched, at=self.dice.randint(1, int(last)))

    def at_time(self, took_s: float) -> Kill:
        """A kill within so many seconds."""
        return partial(killed_after, seconds=self.dice.uniform(0, took_s))

    def go_on(self, path: Path) -> int:
        """Continue a study by the command that can."""
        return self.resume(path) if StudyFolder(path).definition.exists() else self.start(path)

    def finish(self) -> None:
        """Continue the studies until all runs are done, and see that each was trained once.

        A folder whose job never reached the queue may be set aside; nothing was trained there.
        """
        left, deadline = list(self.studies), time.monotonic() + LIMIT_S * len(self.studies)
        while left:
            for path in list(left):
                found = study_statuses(StudyFolder(path), RUNS)
                if all(each.done for each in found.values()):
                    left.remove(path)
                elif not all(each.under_way for each in found.values()):
                    assert self.go_on(path) in (0, 2)
                assert time.monotonic() < deadline, found
            time.sleep(0.2)
        trainings = Counter(line.rsplit(" ", 1)[0] for line in read_lines(self.machine.state / "trainings"))
        for path in self.studies:
            for run in ((path / "runs" / name) for name in RUNS):
                assert trainings.pop(str(run)) == 1, self.machine.log(run)
                assert [each.cause for each in Attempts.read(run).attempts] == ["epochs"]
                assert len(read_holds(run)) == 1
        self.studies.clear()


@pytest.fixture
def user(
    request: pytest.FixtureRequest, small_cosmos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[User]:
    monkeypatch.setattr(submission, "SETTLED_S", 3.0)
    monkeypatch.setenv("FAKE_STEPS", "30")  # so that they are at work when the next command comes
    machine = Machine(request.param, tmp_path, monkeypatch)
    for name, text in HEADS.items() if machine.kind == "slurm" else ():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/bash\n{text}{program.read_text()}")
    yield User(machine, tmp_path / "studies", small_cosmos)
    machine.end()


def between(user: User) -> int:
    """A change of the first command of a study between the submissions of its two jobs."""
    return 2 * changes(lambda: user.start(user.prepared("first", 0))) // 3


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(
    ("user", "is_long"),
    [("slurm", False), *(pytest.param(kind, True, marks=pytest.mark.long) for kind in COMMANDS)],
    indirect=["user"],
)
def test_each_run_is_trained_once_wherever_a_study_is_killed(user: User, resumed: bool, is_long: bool) -> None:
    """At a change that chance picks in each kind of trouble; at length at five of them, and in calm at all changes."""
    cut = between(user) if resumed else 0
    path = user.prepared("second", cut)
    last = changes(lambda: user.go_on(path))
    for trouble in [*TROUBLES] * (5 if is_long else 1):
        user.die(trouble, last, user.at_change, cut)
    if is_long:
        landed = [user.meet("calm", partial(watched, at=at), cut) is None for at in range(1, last + 1)]
        assert sum(landed) > 0.8 * last, "a job that has ended meanwhile saves the command a few changes"
    user.finish()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("user", list(COMMANDS), indirect=True)
def test_each_run_is_trained_once_when_a_study_is_killed_at_random(user: User, resumed: bool) -> None:
    """Of all schedulers together at more than 50 instants for each of the two commands."""
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    user.dice = random.Random(seed)
    cut = between(user) if resumed else 0
    path, began = user.prepared("second", cut), time.monotonic()
    changes(lambda: user.go_on(path))
    took_s = time.monotonic() - began
    for trouble in itertools.islice(itertools.cycle(TROUBLES), 13):
        user.die(trouble, took_s, user.at_time, cut)
    user.finish()


def killed_after(act: Callable[[], object], seconds: float) -> float | None:
    """Run ``act`` in a child that is killed so much later; the seconds that it took if it ended before."""
    child, began = os.fork(), time.monotonic()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        act()
        os._exit(0)
    while (took_s := time.monotonic() - began) < seconds:
        if os.waitpid(child, os.WNOHANG)[0] == child:
            return took_s
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    return None if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL else took_s
