"""Runs of a study as jobs of a site: each in its own job, several packed in one, or instances on their nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.batch.holding import HeldError, move_aside
from hpcbench.batch.job import Job
from hpcbench.batch.job_record import JobHandle, read_job
from hpcbench.batch.site import Site
from hpcbench.batch.submission import UnansweredError, cancel, submit
from hpcbench.results.units import counted
from hpcbench.study.folder import StudyFolder
from hpcbench.study.progress import say
from hpcbench.study.run_status import RunStatus, Status, Statuses
from hpcbench.study.signal_counter import SignalCounter
from hpcbench.study.study_jobs import new_job_folder, study_statuses
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError

HERE_S = (0.5, 0.5)
"""Pauses between two looks at processes on this machine."""
FIRST_S, LONGEST_S = 3.0, 60.0
"""Bounds of the pause between two queries of a scheduler; it begins shorter and grows."""
S_PER_JOB = 0.1
"""The more jobs a query is about, the more it costs the scheduler."""
CANCELLED_S = 60.0
"""How long a job that is cancelled here may take to end."""


@dataclass(kw_only=True)
class JobRuns:
    """What executors (``hpcbench.study.runner``) have in common if their runs are jobs of ``site``."""

    folder: StudyFolder
    site: Site
    pauses_s: tuple[float, float] = HERE_S
    speak: Callable[[str], None] = say

    def look(self, under_way: Statuses) -> dict[str, RunStatus]:
        """Ask the scheduler, once."""
        return study_statuses(self.folder, list(under_way))

    def stop(self, under_way: Statuses, signals: SignalCounter) -> None:
        """Jobs stay in their queue."""

    def hand_over(self, job: Job, title: str) -> tuple[Status, str, JobHandle]:
        """Submit a job; returns the status of its runs, the reason, and the job. Raises ``InputError`` if refused."""
        try:
            handle = submit(job, self.site)
        except UnansweredError as error:
            # The job may be in the queue: until that is known, nobody submits its runs again.
            self.speak(f"{title}: {error}")
            return "unknown", str(error), read_job(job.folder)
        except InputError:
            with contextlib.suppress(OSError):
                job.folder.rmdir()
            raise
        if self.site.scheduler != "local":
            runs = "" if job.packed is None else f"{counted(len(job.packed.words), 'run')}, "
            size = f"{counted(job.nodes, 'node')}, at most {job.node_hours:.3g} node-hours an attempt"
            self.speak(f"{title}: job {handle.job_id}, {runs}{size}")
        return "waiting", "", handle


@dataclass(kw_only=True)
class FromTheStart(JobRuns):
    """Runs whose speed is measured: a failed run is made again from its start, and a repeat as a whole.

    An instance that is made alone, later than the others of its repeat, would not show how they share the machine.
    """

    groups: Mapping[str, str] = field(default_factory=dict)
    """The repeat of each run. Its runs are submitted together and count as one."""
    again: set[str] = field(default_factory=set)
    """Runs that are made again, since a run of their repeat has failed or is missing."""
    retried: tuple[Status, ...] = ("failed", "diverged", "interrupted")

    def unit(self, name: str, state: RunStatus) -> str:
        """The repeat of the run, or the run itself."""
        return self.groups.get(name, name)

    def forgive(self, name: str) -> RunStatus:
        """Count the run as absent; the folder of the failed attempt is set aside when the next one is submitted."""
        return RunStatus("absent")

    def submit_part(self, part: Sequence[StudyRun], job: Job, title: str) -> dict[str, RunStatus]:
        """Submit a job; what earlier attempts of its runs left is set aside, or stays if the job is refused."""
        statuses = self.look({run.name: RunStatus("absent") for run in part})
        wanted = ("absent", *self.retried)
        others = {name: now for name, now in statuses.items() if now.status not in wanted and name not in self.again}
        if others or any(now.under_way for now in statuses.values()):  # a scheduler that did not answer before
            return statuses
        aside: dict[Path, Path] = {}
        try:
            for name, now in statuses.items():
                if now.status != "absent":
                    path = self.folder.run(name)
                    aside[path] = set_aside(path, "failed" if now.status in self.retried else "aside")
            status, reason, handle = self.hand_over(job, title)
        except InputError:
            for path, other in aside.items():
                other.rename(path)
            raise
        self.again.difference_update(statuses)
        return {run.name: RunStatus(status, reason, job=handle) for run in part}


@dataclass(kw_only=True)
class SingleRunJobs(FromTheStart):
    """Each run is a job of its own, in its run folder. Here, without a scheduler, jobs end with the command."""

    make: Callable[[StudyRun, Path], Job]

    def pack(self, due: Sequence[StudyRun]) -> list[tuple[StudyRun, ...]]:
        """Each run alone."""
        return [(run,) for run in due]

    def start(self, part: Sequence[StudyRun]) -> dict[str, RunStatus]:
        """Submit a run."""
        (run,) = part
        return self.submit_part(part, self.make(run, self.folder.run(run.name)), run.name)

    def stop(self, under_way: Statuses, signals: SignalCounter) -> None:
        """End the runs on this machine; those cut off leave nothing, so that the same command can continue."""
        if self.site.scheduler != "local":
            return
        for name, state in under_way.items():
            if state.job is not None:
                with contextlib.suppress(InputError):
                    cancel(state.job)
                now = self.wait_for_end(name)
                if not (now.done or now.under_way):
                    self.folder.clear(name)

    def wait_for_end(self, name: str) -> RunStatus:
        """Wait until a run that was cancelled here has ended; returns its status."""
        end = time.monotonic() + CANCELLED_S
        while (now := self.look({name: RunStatus("running")})[name]).under_way and time.monotonic() < end:
            time.sleep(0.1)
        return now

    def log(self, name: str) -> Path:
        """The run folder, which has the log of the job."""
        return self.folder.run(name)


@dataclass(kw_only=True)
class PackedJobs(JobRuns):
    """A job makes several runs, side by side on a node; its folder is ``STUDY/jobs/NUMBER``."""

    make: Callable[[Sequence[StudyRun], Path], Job]
    runs_per_job: int
    retried: tuple[Status, ...] = ("failed",)

    def pack(self, due: Sequence[StudyRun]) -> list[tuple[StudyRun, ...]]:
        """Groups of as many runs as a job packs, the most urgent first."""
        return [tuple(due[start : start + self.runs_per_job]) for start in range(0, len(due), self.runs_per_job)]

    def unit(self, name: str, state: RunStatus) -> str:
        """The job of the run."""
        return "" if state.job is None else state.job.folder.name

    def forgive(self, name: str) -> RunStatus:
        """Forget that the run failed; another job continues it from its last checkpoint."""
        self.folder.forgive(name)
        return self.folder.status(name)

    def start(self, part: Sequence[StudyRun]) -> dict[str, RunStatus]:
        """Submit the job."""
        path = new_job_folder(self.folder)
        status, reason, handle = self.hand_over(self.make(part, path), f"jobs/{path.name}")
        return {run.name: RunStatus(status, reason, job=handle) for run in part}

    def log(self, name: str) -> Path:
        """The file with what the run printed, if it has begun."""
        return self.folder.log(name)


@dataclass(kw_only=True)
class InstanceJobs(FromTheStart):
    """All instances of a repeat are steps of one job, so that they start together; its folder is ``STUDY/jobs/NUMBER``.

    ``groups`` holds every run.
    """

    make: Callable[[Sequence[StudyRun], Path], Job]

    def pack(self, due: Sequence[StudyRun]) -> list[tuple[StudyRun, ...]]:
        """The instances of each repeat."""
        parts: dict[str, list[StudyRun]] = {}
        for run in due:
            parts.setdefault(self.groups[run.name], []).append(run)
        return [tuple(part) for part in parts.values()]

    def start(self, part: Sequence[StudyRun]) -> dict[str, RunStatus]:
        """Submit the job of a repeat."""
        path = new_job_folder(self.folder)
        return self.submit_part(part, self.make(part, path), f"jobs/{path.name}")

    def log(self, name: str) -> Path:
        """The file with what the run printed, if it has begun."""
        return self.folder.log(name)


def whole_repeats(statuses: Statuses, groups: Mapping[str, str], retried: Sequence[Status]) -> set[str]:
    """The runs of repeats to make again: one of their runs is to be retried, or absent beside others that have ended.

    The latter is what a command leaves that was killed between two runs of a repeat. None may be under way.
    """
    members: dict[str, list[str]] = {}
    for name, group in groups.items():
        members.setdefault(group, []).append(name)
    return {
        name
        for names in members.values()
        if is_to_be_made_again([statuses[name] for name in names], retried)
        for name in names
    }


def is_to_be_made_again(repeat: Sequence[RunStatus], retried: Sequence[Status]) -> bool:
    """Whether a repeat is to be made again as a whole; one of a single run never is."""
    if len(repeat) < 2 or any(run.under_way or run.claimed for run in repeat):
        return False
    absent = sum(run.status == "absent" for run in repeat)
    return 0 < absent < len(repeat) or any(run.status in retried for run in repeat)


def scheduler_pauses_s(jobs: int) -> tuple[float, float]:
    """Seconds between two queries to a scheduler about this many jobs, at first and at most."""
    return first_pause_s(jobs), LONGEST_S


def set_aside(path: Path, why: str) -> Path:
    """Rename the folder of a run to ``NAME.WHY-K``; returns the new path.

    Raises ``InputError`` if a job holds the folder.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    try:
        move_aside(path, aside)
    except HeldError as error:
        raise InputError(str(error)) from None
    return aside


def first_pause_s(jobs: int) -> float:
    """Seconds until the first query about this many jobs: 3 up to 30 jobs, 60 from 600 on."""
    return min(LONGEST_S, max(FIRST_S, S_PER_JOB * jobs))
