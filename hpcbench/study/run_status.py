"""The status of the runs of a study of any kind: from their folders and, if these do not tell, from their jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hpcbench.batch.continuation import is_left_behind
from hpcbench.batch.failure_reason import failure_reason, read_job_log
from hpcbench.batch.job_record import JobHandle, is_unused
from hpcbench.batch.scheduler import JobStatus
from hpcbench.batch.submission import job_statuses
from hpcbench.results.run_folder import CRASH, write_atomic
from hpcbench.results.summary import Summary
from staging.errors import DataError
from staging.formats.regular import read_text

TURN = "for its turn in the job"
"""Why a run waits while its packed job runs."""
Status = Literal[
    "absent", "waiting", "running", "unknown", "interrupted", "reached", "missed", "diverged", "failed",
]  # fmt: skip
DONE: tuple[Status, ...] = ("reached", "missed")
"""The run finished, and left all its figures."""
FINAL: tuple[Status, ...] = (*DONE, "diverged", "failed")
"""Nothing more is done for such a run, unless a retry of failed ones is requested."""
UNDER_WAY: tuple[Status, ...] = ("waiting", "running", "unknown")
"""A run that may be in a queue (``unknown``) is treated as one that is."""


@dataclass(frozen=True)
class RunStatus:
    """The status of one run; ``summary`` is unset if the run left none."""

    status: Status
    reason: str = ""
    summary: Summary | None = None
    job: JobHandle | None = None
    """The job that makes the run, or made it; unset for a process of a study's own command."""
    claimed: bool = False
    """Whether the job has not ended and may make the run again, although the run has ended."""

    @property
    def done(self) -> bool:
        """Whether the run finished: it reached or missed its target."""
        return self.status in DONE

    @property
    def final(self) -> bool:
        """Whether nothing more is done for the run."""
        return self.status in FINAL

    @property
    def job_runs(self) -> bool:
        """Whether the job runs, as far as the status of the run tells."""
        return self.status == "running" or self.reason == TURN

    @property
    def under_way(self) -> bool:
        """Whether the run waits or runs, or may."""
        return self.status in UNDER_WAY


Statuses = Mapping[str, RunStatus]
"""The status of the runs of a study, by name."""


def read_run_status(folder: Path) -> RunStatus:
    """The status that the folder of a run shows; a damaged summary counts as a failure."""
    if is_unused(folder):
        return RunStatus("absent")
    if (folder / CRASH).exists():
        return RunStatus("failed", _crash_reason(folder / CRASH))
    path = folder / "summary.json"
    if not path.exists():
        return RunStatus("interrupted", "ended without a summary")
    try:
        summary = Summary.from_json(read_text(path), path)
    except (DataError, OSError) as error:
        return RunStatus("failed", str(error))
    return RunStatus(judge(summary), summary.reason, summary)


def judge(summary: Summary) -> Status:
    """The status of a run that left a summary."""
    if summary.status == "success":
        return "reached"
    if summary.status == "target_not_reached":
        return "missed"
    causes: dict[str | None, Status] = {
        "diverged": "diverged", "signal": "interrupted", "preempted": "interrupted", "hang": "interrupted",
        "rank_lost": "interrupted",
    }  # fmt: skip
    return causes.get(summary.cause, "failed")


def run_statuses(jobs: Mapping[Path, JobHandle | None]) -> dict[Path, RunStatus]:
    """The status of the runs in these folders, each with the job that makes it, if there is one.

    Each scheduler is queried once, for the jobs of runs whose folders do not tell. A job's folder is the run's own, or
    that of several runs (``hpcbench.batch.packed_runs``).
    """
    statuses = {path: read_run_status(path) for path in jobs}
    asked = {path: job for path, job in jobs.items() if job is not None and needs_answer(statuses[path], job, path)}
    handles = {job.folder: job for job in asked.values()}
    answers = dict(zip(handles, job_statuses(list(handles.values())), strict=True))
    for path, job in asked.items():
        statuses[path] = judged(path, job, answers[job.folder])
    return {path: replace(state, job=jobs[path]) for path, state in statuses.items()}


def needs_answer(state: RunStatus, job: JobHandle, path: Path) -> bool:
    """Whether the status of the job matters in addition to what the folder tells.

    Here, without a scheduler, the next run waits until this one has left the machine. A run that is done may still be
    writing its page.
    """
    if not state.done:
        return not (state.status == "absent" and job.folder == path)
    assert state.summary is not None
    return job.scheduler == "local" or not state.summary.complete


def judged(path: Path, job: JobHandle, answer: JobStatus) -> RunStatus:
    """The status of a run from the scheduler's answer and from its folder, which is read after that."""
    state = read_run_status(path)
    alive = answer.state in UNDER_WAY
    if job.folder == path:
        if answer.state in ("waiting", "running", "unknown"):
            return RunStatus(answer.state, answer.reason)
        return RunStatus("failed", why(path, answer)) if is_without_words(state, path, job) else state
    if state.final and (state.summary is None or state.summary.complete or not alive):
        return replace(state, claimed=alive)
    if answer.state in ("waiting", "unknown"):
        return RunStatus(answer.state, answer.reason)
    if answer.state == "running":
        return RunStatus("waiting", TURN) if state.status == "absent" else RunStatus("running")
    told = state.summary is not None and not is_left_behind(state.summary, path, job.folder)
    return state if told else replace(state, reason=why(job.folder, answer))


def is_without_words(state: RunStatus, path: Path, job: JobHandle) -> bool:
    """Whether the newest attempt of a run's own job was killed before it could say why the run ended."""
    if state.summary is None:
        return state.status == "interrupted"
    return is_left_behind(state.summary, path, job.folder)


def why(path: Path, answer: JobStatus) -> str:
    """Why a job ended before its run did: in the scheduler's words, or from the end of its log."""
    if answer.source and answer.state not in ("lost", "done", "failed"):
        return f"{answer.state}: {answer.reason}" if answer.reason else answer.state
    return failure_reason(read_job_log(path)) or answer.reason or "it ended without a summary"


def counted_by_status(states: Sequence[RunStatus]) -> dict[str, int]:
    """How many runs have which status, in the order of a run's life; statuses without a run are left out."""
    order: tuple[Status, ...] = (*DONE, "diverged", "running", "waiting", "unknown", "interrupted", "failed")
    counts = {status: sum(state.status == status for state in states) for status in order}
    return {status: count for status, count in counts.items() if count}


def record_crash(folder: Path, exit_code: int, reason: str) -> None:
    """Record how a run ended that could not do so itself."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / CRASH, json.dumps({"exit_code": exit_code, "reason": reason}, indent=2) + "\n")


def _crash_reason(path: Path) -> str:
    try:
        return str(json.loads(read_text(path))["reason"])
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return f"{path.name} cannot be read"
