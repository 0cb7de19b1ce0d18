"""Brings a scaling study forward: submits what is due, waits where that is wanted, and says how each run ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.batch.site import Site
from hpcbench.batch.submission import UnansweredError, cancel, read_job, submit
from hpcbench.exits import Aborted
from hpcbench.results import units
from hpcbench.study.folder import StudyFolder
from hpcbench.study.progress import say
from hpcbench.study.runner import Signals
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.jobs import job_of
from hpcbench.study.scaling.ladder import PlannedRun, all_runs, groups
from hpcbench.study.scaling.run_status import UNDER_WAY, RunStatus, look, look_at_runs
from staging.errors import InputError

FAILURES_IN_A_ROW = 3
"""A cause that all runs share is likely then."""


@dataclass
class Advance:
    """One command's work on a study.

    ``at_once`` groups of runs are with the scheduler at most; without ``wait`` it returns once these are there. Here,
    where there is no scheduler, a signal ends what runs; jobs of a scheduler stay in its queue.
    """

    study: Scaling
    site: Site
    folder: StudyFolder
    at_once: int | None = None
    wait: bool = True
    retry: bool = False
    poll_s: float = 0.5
    """Between two looks at first; it grows to ``longest_poll_s`` while nothing ends."""
    longest_poll_s: float = 0.5
    speak: Callable[[str], None] = say
    runs: dict[str, RunStatus] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    failures: int = 0
    pause_s: float = 0.0

    def run(self) -> dict[str, RunStatus]:
        """Go on until there is nothing left to do; how all runs stand.

        Raises ``Aborted`` (128+n) for signal n, and ``InputError`` where nothing but failures come, or no job can be
        made or is taken.
        """
        self.runs = look_at_runs(self.folder, [run.name for run in all_runs(self.study)])
        for name, each in self.runs.items():
            if each.status == "done":  # it may have ended while nobody waited for it
                self.folder.tidy(name, keep=False)
            elif each.status == "failed" and self.retry:
                self.runs[name] = RunStatus("absent")
        with Signals() as signals:
            try:
                while self.submit_due(signals) and self.wait:
                    self.poll(signals)
            except Aborted:
                self.end_local_runs()
                raise
        return self.runs

    def submit_due(self, signals: Signals) -> bool:
        """Hand over what has not begun, group by group as far as there is room; whether anything is under way.

        Nothing is submitted while the status of a run is unknown: its scheduler does not answer.
        """
        every = groups(self.study)
        under_way = [self.is_under_way(group) for group in every]
        for number, group in enumerate(every):
            if self.at_once is not None and sum(under_way) - under_way[number] >= self.at_once:
                continue
            for run in group:
                unknown = any(each.status == "unknown" for each in self.runs.values())
                if self.runs[run.name].status == "absent" and not unknown:
                    signals.check()
                    self.submit(run)
            under_way[number] = self.is_under_way(group)
        return any(each.status in UNDER_WAY for each in self.runs.values())

    def is_under_way(self, group: list[PlannedRun]) -> bool:
        """Whether a run of the group is in the queue or running."""
        return any(self.runs[run.name].status in UNDER_WAY for run in group)

    def submit(self, run: PlannedRun) -> None:
        """Hand one run over; what a failed attempt left is kept beside, and stays where the job is refused."""
        path = self.folder.run(run.name)
        job = job_of(self.study, self.site, run, path)
        now = look(path)
        if now.status not in ("absent", "failed"):  # a scheduler that did not answer before
            self.runs[run.name] = now
            return
        aside = set_aside(path) if now.status == "failed" else None
        try:
            done = submit(job, self.site)
        except UnansweredError as error:
            # It may be in the queue: what the attempt before left stays beside, and nobody submits this run again.
            self.runs[run.name] = RunStatus("unknown", str(error), job=read_job(path))
            self.speak(f"{run.name}: {error}")
            return
        except InputError:
            if aside is not None:
                with contextlib.suppress(OSError):
                    path.rmdir()
                aside.rename(path)
            raise
        self.runs[run.name] = RunStatus("waiting", job=done)
        self.started[run.name] = time.monotonic()
        if self.site.scheduler != "local":
            size = counted(job.nodes, "node")
            self.speak(f"{run.name}: job {done.job_id}, {size}, at most {job.node_hours:.3g} node-hours")

    def poll(self, signals: Signals) -> None:
        """Wait a moment, then look at what is under way."""
        self.pause_s = min(self.longest_poll_s, 1.5 * (self.pause_s or self.poll_s / 1.5))
        end = time.monotonic() + self.pause_s
        while time.monotonic() < end:
            signals.check()
            time.sleep(min(0.1, self.pause_s))
        under_way = [name for name, before in self.runs.items() if before.status in UNDER_WAY]
        for name, now in look_at_runs(self.folder, under_way).items():
            self.runs[name] = now
            if now.status not in UNDER_WAY:
                self.ended(name, now)

    def ended(self, name: str, now: RunStatus) -> None:
        """A line for a run that has ended; several failures in a row end the study."""
        self.pause_s = 0.0
        self.folder.tidy(name, keep=now.status == "failed")
        left = sum(each.status in ("absent", *UNDER_WAY) for each in self.runs.values())
        # Of a job that an earlier command submitted it is not known how long it took.
        took = f", {units.duration(time.monotonic() - self.started[name])}" if name in self.started else ""
        done = len(self.runs) - left
        self.speak(f"[{done:{len(str(len(self.runs)))}}/{len(self.runs)}] {name}: {words(now)}{took} ({left} left)")
        self.failures = self.failures + 1 if now.status == "failed" else 0
        if self.failures >= FAILURES_IN_A_ROW:
            self.end_local_runs()
            raise InputError(
                f"{self.failures} runs in a row failed, the last with: {now.reason}; see the log in "
                f"{self.folder.run(name)}, mend it, then: hpcbench study resume {self.folder.path}"
            )

    def end_local_runs(self) -> None:
        """End what this command runs here; what is cut off leaves nothing, so that the same command goes on."""
        if self.site.scheduler != "local":
            return
        for name, each in self.runs.items():
            if each.status in UNDER_WAY and each.job is not None:
                with contextlib.suppress(InputError):
                    cancel(each.job)
                if self.wait_for_end(name).status == "failed":
                    self.folder.clear(name)

    def wait_for_end(self, name: str, limit_s: float = 60.0) -> RunStatus:
        """Until a run that was cancelled here is gone; how it then stands."""
        end = time.monotonic() + limit_s
        while (now := look(self.folder.run(name))).status in UNDER_WAY and time.monotonic() < end:
            time.sleep(0.1)
        return now


def words(now: RunStatus) -> str:
    """The end of a run in a few words."""
    if now.summary is None:
        return f"{now.status}: {now.reason}"
    s = now.summary
    rate = "too few steps to measure" if s.warm_samples_per_s is None else (
        f"{units.significant(s.warm_samples_per_s)} samples/s"
    )  # fmt: skip
    missed = "" if s.status == "success" else ", target not reached"
    slow = f", slow: {'; '.join(s.slow_nodes)}" if s.slow_nodes else ""
    return f"{rate}{missed}{slow}"


def counted(number: int, thing: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def set_aside(path: Path) -> Path:
    """Rename the folder of a failed run to ``NAME.failed-K``; returns that."""
    number = 1
    while (aside := path.with_name(f"{path.name}.failed-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside
