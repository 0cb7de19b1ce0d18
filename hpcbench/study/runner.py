"""Advances a study of any kind: starts the runs that are due, waits if requested, and reports how each run ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hpcbench.study.folder import StudyFolder
from hpcbench.study.run_status import RunStatus, Status, Statuses
from hpcbench.study.signal_counter import SignalCounter
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError

FAILURES_IN_A_ROW = 3
"""After this many failures a cause that all runs share is likely."""


@dataclass(frozen=True)
class ExecutionOptions:
    """How a command advances a study; none of the options changes a result."""

    at_once: int | None = None
    """Most runs here, or most jobs in the queue (for throughput: groups of jobs), at the same time."""
    wait: bool = False
    """Stay until all jobs have ended."""
    retry: bool = False
    """Make failed runs again."""
    keep: bool = False
    """Keep checkpoints and per-step tables of runs that are done."""
    estimate: bool = True
    """Tell how long the study takes here, from a short run if none is done."""
    runs_per_job: int | None = None
    """Runs that a job packs."""


class Executor(Protocol):
    """Where runs are made: processes here, or jobs of a scheduler."""

    @property
    def pauses_s(self) -> tuple[float, float]:
        """Seconds between two looks, at first and at most; the pause grows while nothing ends."""

    @property
    def retried(self) -> tuple[Status, ...]:
        """The statuses of runs that a retry makes again."""

    def pack(self, due: Sequence[StudyRun]) -> list[tuple[StudyRun, ...]]:
        """The runs in parts, each of which is started together, most urgent first."""

    def unit(self, name: str, state: RunStatus) -> str:
        """The unit that the run belongs to; ``at_once`` limits how many units are under way."""

    def forgive(self, name: str) -> RunStatus:
        """Prepare a run to be made again; returns its status."""

    def start(self, part: Sequence[StudyRun]) -> Mapping[str, RunStatus]:
        """Start a part. Raises ``InputError`` if that is impossible; then nothing of the part remains."""

    def look(self, under_way: Statuses) -> Mapping[str, RunStatus]:
        """The status of runs that were under way."""

    def stop(self, under_way: Statuses, signals: SignalCounter) -> None:
        """End the runs that end with the command; jobs in a queue stay there."""

    def log(self, name: str) -> Path:
        """Where a run, or its job, says what went wrong."""


@dataclass
class StudyRunner:
    """One command's work on a study.

    ``due`` gives the runs that can be made, most urgent first, from the status of all; it may include those under way.
    At most ``at_once`` units are under way. Without ``wait`` the runner returns when these have been started. A run
    whose job ended before it did is left to the next command: whoever cancelled the job does not want it back.
    """

    folder: StudyFolder
    executor: Executor
    due: Callable[[Statuses], Sequence[StudyRun]]
    at_once: int | None = None
    wait: bool = True
    retry: bool = False
    keep: bool = False
    finished: Callable[[str, RunStatus, float | None], None] = lambda name, state, seconds: None
    """Called for each run that has ended, with the seconds it took, if this command started it."""
    most_failures: int | None = FAILURES_IN_A_ROW
    """Failures in a row after which the study ends; unset: no limit."""
    statuses: dict[str, RunStatus] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    left_alone: set[str] = field(default_factory=set)
    failures: int = 0
    pause_s: float = 0.0

    def run(self, statuses: Statuses, caught: SignalCounter | None = None) -> dict[str, RunStatus]:
        """Continue from ``statuses`` until there is nothing left to do; returns the status of all runs.

        ``caught`` are the signals that end the work; unset: SIGINT and SIGTERM.

        Raises ``Aborted`` (128+n) for signal n, and ``InputError`` if nothing but failures result, or no run can be
        started. A second call continues from there.
        """
        self.statuses = {name: self.at_the_start(name, state) for name, state in statuses.items()}
        with caught or SignalCounter() as signals:
            try:
                while True:
                    signals.check()
                    self.start_due(signals)
                    if not (self.wait and self.under_way()):
                        return self.statuses
                    while not self.poll(signals):
                        pass
            finally:
                self.executor.stop(self.under_way(), signals)

    def at_the_start(self, name: str, state: RunStatus) -> RunStatus:
        """The status of a run for this command; tidies a run that ended while no command waited for it."""
        if self.retry and state.status in self.executor.retried and not state.claimed:
            return self.executor.forgive(name)
        self.tidy(name, state)
        return state

    def tidy(self, name: str, state: RunStatus) -> None:
        """Remove what a run that has ended no longer needs."""
        if state.final:
            self.folder.tidy(name, self.keep or state.status == "failed")

    def under_way(self) -> dict[str, RunStatus]:
        """Runs that wait or run, or may."""
        return {name: state for name, state in self.statuses.items() if state.under_way}

    def start_due(self, signals: SignalCounter) -> None:
        """Start the runs that are due, as far as there is room; none while the status of a run is unknown."""
        due = [run for run in self.due(self.statuses) if self.is_startable(run.name)]
        for part in self.executor.pack(due):
            unit = self.executor.unit(part[0].name, self.status(part[0].name))
            others = {self.executor.unit(name, state) for name, state in self.under_way().items()} - {unit}
            if self.at_once is not None and len(others) >= self.at_once:
                continue
            if any(state.status == "unknown" for state in self.statuses.values()):
                return
            signals.check()
            self.statuses |= self.executor.start(part)
            self.started |= {run.name: time.monotonic() for run in part}

    def is_startable(self, name: str) -> bool:
        """Whether this command may start a run that is due."""
        return not self.status(name).under_way and name not in self.left_alone

    def status(self, name: str) -> RunStatus:
        """The status of a run, which may be new to the study."""
        return self.statuses.get(name, RunStatus("absent"))

    def poll(self, signals: SignalCounter) -> bool:
        """Wait a moment, then look at the runs under way; returns whether a status has changed."""
        first, longest = self.executor.pauses_s
        self.pause_s = min(longest, 1.5 * (self.pause_s or first / 1.5))
        end = time.monotonic() + self.pause_s
        while time.monotonic() < end:
            signals.check()
            time.sleep(min(0.1, self.pause_s))
        signals.check()
        before = self.under_way()
        now = self.executor.look(before)
        for name, state in now.items():
            self.statuses[name] = state
            if not state.under_way:
                self.ended(name, state)
        return any(state.status != before[name].status for name, state in now.items())

    def ended(self, name: str, state: RunStatus) -> None:
        """Report a run that has ended. Raises ``InputError`` after several failures in a row, which end the study."""
        self.pause_s = 0.0
        self.tidy(name, state)
        if not state.final:
            self.left_alone.add(name)
        began = self.started.get(name)
        self.finished(name, state, None if began is None else time.monotonic() - began)
        self.failures = self.failures + 1 if state.status == "failed" else 0
        if self.most_failures is not None and self.failures >= self.most_failures:
            raise InputError(
                f"{self.failures} runs in a row failed, the last with: {state.reason}; see {self.executor.log(name)}, "
                f"mend it, then: hpcbench study resume {self.folder.path}"
            )
