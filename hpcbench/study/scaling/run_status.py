"""The status of the runs of a scaling study, from their folders and their scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcbench.batch.scheduler import JobStatus
from hpcbench.batch.submission import RECORD, JobHandle, is_unused, job_statuses, read_job
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.folder import StudyFolder
from staging.errors import DataError, InputError
from staging.formats.regular import read_text

Status = Literal["done", "waiting", "running", "unknown", "failed", "absent"]
UNDER_WAY: tuple[Status, ...] = ("waiting", "running", "unknown")
"""A run that may be in a queue is taken for one that is."""


@dataclass(frozen=True)
class RunStatus:
    """The status of one run. A run that missed its target is done; its summary says so."""

    status: Status
    reason: str = ""
    summary: Summary | None = None
    job: JobHandle | None = None


def look(path: Path) -> RunStatus:
    """The status of the run in the folder ``path``; see ``look_at``."""
    return look_at([path])[path]


def look_at(paths: Sequence[Path]) -> dict[Path, RunStatus]:
    """The status of the runs in these folders; schedulers are asked, once each, where folders do not tell."""
    found: dict[Path, RunStatus] = {}
    jobs: dict[Path, JobHandle] = {}
    for path in paths:
        try:
            status, job = by_record(path)
        except InputError as error:
            found[path] = RunStatus("failed", str(error))
            continue
        if status is not None:
            found[path] = status
        elif job is not None:
            jobs[path] = job
        else:
            found[path] = judged(path, None, JobStatus("lost"))
    answers = dict(zip(jobs, job_statuses(list(jobs.values())), strict=True))
    return found | {path: judged(path, jobs[path], answers[path]) for path in jobs}


def look_at_runs(folder: StudyFolder, names: Sequence[str]) -> dict[str, RunStatus]:
    """The status of the runs of a study by name."""
    found = look_at([folder.run(name) for name in names])
    return {name: found[folder.run(name)] for name in names}


def by_record(path: Path) -> tuple[RunStatus | None, JobHandle | None]:
    """The status of a run whose folder tells it, or the job whose scheduler is to be asked.

    Raises ``InputError`` for a folder that cannot be read.
    """
    if is_unused(path):
        return RunStatus("absent"), None
    job = read_job(path) if (path / RECORD).exists() else None
    summary = summary_of(RunFolder(path))
    # Here the next run waits until this one has left the machine; a scheduler sees to that itself.
    if is_done(summary) and (job is None or job.scheduler != "local"):
        return RunStatus("done", "" if summary is None else summary.reason, summary, job), job
    return None, job


def judged(path: Path, job: JobHandle | None, answer: JobStatus) -> RunStatus:
    """The status of a run by what its scheduler answered and, read after that, its folder."""
    if answer.state in ("waiting", "running", "unknown"):
        return RunStatus(answer.state, answer.reason, job=job)
    try:
        summary = summary_of(RunFolder(path))
    except DataError as error:
        return RunStatus("failed", str(error), job=job)
    if is_done(summary):
        return RunStatus("done", "" if summary is None else summary.reason, summary, job)
    return RunStatus("failed", why(path, answer, summary), job=job)


def summary_of(folder: RunFolder) -> Summary | None:
    """The summary of a run, where it has left one. Raises ``DataError``."""
    return folder.read_summary() if folder.summary.exists() else None


def is_done(summary: Summary | None) -> bool:
    """Whether a run went on to its end."""
    return summary is not None and summary.status != "aborted"


def why(path: Path, state: JobStatus, summary: Summary | None) -> str:
    """Why a run left no figures: its own words, the scheduler's, or the end of its log."""
    if summary is not None and summary.reason:
        return summary.reason
    if state.source and state.state not in ("lost", "done", "failed"):
        return f"{state.state}: {state.reason}" if state.reason else state.state
    return last_words(path) or state.reason or "it ended without a summary"


def last_words(path: Path) -> str:
    """The last line of the job's log that says what is wrong, else its last line."""
    logs = sorted([*path.glob("job*.log"), *path.glob("hpcbench.[oe]*")], key=lambda log: log.stat().st_mtime)
    lines = read_text(logs[-1], errors="replace").splitlines() if logs else []
    said = [line.strip() for line in lines if line.strip()]
    wrong = [line for line in said if "error:" in line or "aborted:" in line]
    return (wrong or said or [""])[-1][:300]
