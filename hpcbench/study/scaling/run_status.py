"""How the runs of a scaling study stand, from their folders and their scheduler."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.submission import RECORD, JobHandle, JobStatus, read_job, standing
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from staging.errors import DataError, InputError
from staging.formats.regular import read_text

Status = Literal["done", "waiting", "running", "failed", "absent"]
UNDER_WAY: tuple[Status, ...] = ("waiting", "running")


@dataclass(frozen=True)
class RunStatus:
    """How one run stands. A run that missed its target is done; its summary says so."""

    status: Status
    reason: str = ""
    summary: Summary | None = None
    job: JobHandle | None = None


def look(path: Path) -> RunStatus:
    """How the run in the folder ``path`` stands; its scheduler is asked where the folder does not tell."""
    folder = RunFolder(path)
    if not path.is_dir() or not any(path.iterdir()):
        return RunStatus("absent")
    job, state = None, JobStatus("unknown")
    if (path / RECORD).exists():
        try:
            job = read_job(path)
        except InputError as error:
            return RunStatus("failed", str(error))
    try:
        summary = summary_of(folder)
        # Here the next run waits until this one has left the machine; a scheduler sees to that itself.
        if job is not None and (not is_done(summary) or job.scheduler == "local"):
            state = asked(job)
            summary = summary_of(folder)  # it may have ended since
    except DataError as error:
        return RunStatus("failed", str(error), job=job)
    if is_done(summary) and state.state not in UNDER_WAY:
        return RunStatus("done", "" if summary is None else summary.reason, summary, job)
    if state.state in UNDER_WAY:
        return RunStatus("waiting" if state.state == "waiting" else "running", state.reason, job=job)
    return RunStatus("failed", why(path, state, summary), job=job)


def summary_of(folder: RunFolder) -> Summary | None:
    """The summary of a run, where it has left one. Raises ``DataError``."""
    return folder.read_summary() if folder.summary.exists() else None


def is_done(summary: Summary | None) -> bool:
    """Whether a run went on to its end."""
    return summary is not None and summary.status != "aborted"


def asked(job: JobHandle) -> JobStatus:
    """How its scheduler says that the job stands; where no command of it is here, the job may well be waiting."""
    found = standing(job)
    here = any(shutil.which(command[0]) for command in SCHEDULERS[job.scheduler].state_commands(job.job_id))
    return found if here or found.state != "unknown" else JobStatus("waiting", f"{job.scheduler} cannot be asked here")


def why(path: Path, state: JobStatus, summary: Summary | None) -> str:
    """Why a run left no figures: its own words, the scheduler's, or the end of its log."""
    if summary is not None and summary.reason:
        return summary.reason
    if state.told_by and state.state not in ("unknown", "done", "failed"):
        return f"{state.state}: {state.reason}" if state.reason else state.state
    return last_words(path) or state.reason or "it ended without a summary"


def last_words(path: Path) -> str:
    """The last line of the job's log that says what is wrong, else its last line."""
    logs = sorted([*path.glob("job*.log"), *path.glob("hpcbench.[oe]*")], key=lambda log: log.stat().st_mtime)
    lines = read_text(logs[-1], errors="replace").splitlines() if logs else []
    said = [line.strip() for line in lines if line.strip()]
    wrong = [line for line in said if "error:" in line or "aborted:" in line]
    return (wrong or said or [""])[-1][:300]
