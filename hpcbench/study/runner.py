"""Makes the runs of a study, several at once; what is under way when it stops can be continued."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from hpcbench.exits import BAD_INPUT, Aborted
from hpcbench.study.folder import StudyFolder
from hpcbench.study.job import Job
from hpcbench.study.launcher import Launcher, Process
from hpcbench.study.outcome import Outcome, record_crash
from staging.errors import InputError
from staging.ranks.signals import Handlers

Outcomes = Mapping[str, Outcome]
NextJobs = Callable[[Outcomes], Sequence[Job]]
"""What is to be run now, most urgent first, given how every run stands; those under way may be among them."""

POLL_S = 0.1
GRACE_S = 120.0
"""How long a run may take to end an optimizer step and write its checkpoint."""
CRASHES_IN_A_ROW = 3
"""A cause that all runs share is likely then."""


@dataclass
class Running:
    """A run under way."""

    job: Job
    process: Process
    resumed: bool
    started: float


@dataclass
class Runner:
    """Runs jobs, ``at_once`` at a time with ``threads`` each, until ``next_jobs`` asks for none.

    ``finished`` is called after each run that ended by itself.
    """

    folder: StudyFolder
    launcher: Launcher
    at_once: int
    threads: int
    keep: bool = False
    retry: bool = False
    finished: Callable[[Job, Outcome, float], None] = lambda job, outcome, seconds: None
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    crashes: int = 0

    def run(self, names: Sequence[str], next_jobs: NextJobs) -> Outcomes:
        """Run all; ``names`` are those of runs that may be in the folder already.

        Raises ``Aborted`` (128+n) for signal n, after all runs have stopped, and ``InputError`` when nothing but
        crashes come. Run again, it goes on from there.
        """
        self.outcomes = {name: self.look(name) for name in names}
        with Signals() as signals:
            try:
                self.work(next_jobs, signals)
            finally:
                self.stop_all(signals)
        return self.outcomes

    def look(self, name: str) -> Outcome:
        """How a run stands before this process has done anything."""
        outcome = self.folder.outcome(name)
        if outcome.status == "crashed" and self.retry:
            self.folder.forgive(name)
            return Outcome("interrupted", outcome.reason)
        if outcome.final:  # it may have ended while an earlier process of the study stopped
            self.folder.tidy(name, self.keep or outcome.status == "crashed")
        return outcome

    def work(self, next_jobs: NextJobs, signals: Signals) -> None:
        """Start what is due and collect what has ended, until there is neither."""
        while True:
            signals.check()
            due = [job for job in next_jobs(self.outcomes) if job.name not in self.running]
            for job in due[: self.at_once - len(self.running)]:
                self.start(job)
            if not self.running:
                return
            while not (ended := [each for each in self.running.values() if each.process.poll() is not None]):
                signals.check()
                time.sleep(POLL_S)
            for each in ended:
                self.conclude(each)

    def start(self, job: Job) -> None:
        """Start a run, from its last checkpoint where it has one."""
        resume = self.folder.resumable(job.name)
        if not resume:
            self.folder.clear(job.name)
        self.launch(job, resume)

    def launch(self, job: Job, resume: bool) -> None:
        """Start the process of a run."""
        run_dir = self.folder.run(job.name)
        arguments = job.resuming(run_dir) if resume else job.arguments(run_dir, self.threads)
        process = self.launcher.start(arguments, self.folder.log(job.name))
        self.running[job.name] = Running(job, process, resume, time.monotonic())

    def conclude(self, ended: Running) -> None:
        """Take down how a run ended."""
        job, name = ended.job, ended.job.name
        code = ended.process.poll()
        assert code is not None
        del self.running[name]
        if ended.resumed and code == BAD_INPUT:
            # Its checkpoint is no use, for example from another number of threads.
            self.folder.clear(name)
            self.launch(job, resume=False)
            return
        outcome = self.folder.outcome(name)
        if not outcome.final:
            record_crash(self.folder.run(name), code, crash_reason(code, self.folder.log(name)))
            outcome = self.folder.outcome(name)
        self.outcomes[name] = outcome
        self.folder.tidy(name, self.keep or outcome.status == "crashed")
        self.finished(job, outcome, time.monotonic() - ended.started)
        self.crashes = self.crashes + 1 if outcome.status == "crashed" else 0
        if self.crashes >= CRASHES_IN_A_ROW:
            raise InputError(
                f"{self.crashes} runs in a row crashed, the last with: {outcome.reason}; see {self.folder.log(name)}, "
                "mend it, and give the same command with --retry"
            )

    def stop_all(self, signals: Signals) -> None:
        """Ask what still runs to stop; a second signal, or too long a wait, ends it at once."""
        asked, killed = time.monotonic(), False
        first = signals.count
        for each in self.running.values():
            each.process.stop()
        while any(each.process.poll() is None for each in self.running.values()):
            late = time.monotonic() - asked > GRACE_S
            if not killed and (late or signals.count > max(first, 1)):
                killed = True
                for each in self.running.values():
                    each.process.stop(at_once=True)
            time.sleep(POLL_S)
        self.running.clear()


def crash_reason(code: int, log: Path) -> str:
    """Why a run ended that left no summary: the last line that it printed."""
    how = f"killed by signal {code - 128}" if code > 128 else f"exit code {code}"
    try:
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        lines = []
    last = next((line for line in reversed(lines) if line), "")
    return f"{how}: {last.removeprefix('hpcbench: error: ').removeprefix('hpcbench: aborted: ')}" if last else how


class Signals(Handlers):
    """While entered, SIGINT and SIGTERM are counted, and raise ``Aborted`` at the next ``check``."""

    numbers = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._first: signal.Signals | None = None

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self._first = self._first or signal.Signals(number)

    def check(self) -> None:
        """Raise ``Aborted`` if a signal came."""
        if self._first is not None:
            raise Aborted(f"signal {self._first.name}; the same command goes on from here", 128 + self._first.value)
