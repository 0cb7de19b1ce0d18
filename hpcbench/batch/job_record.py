"""What a run folder says about the job that was submitted from it: ``job.json``, beside the script.

The record is written before the job is submitted, without an id, so that a job can be found again if the scheduler's
answer is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from hpcbench.batch.holds import continuation, newest_hold
from hpcbench.batch.scheduler import Scheduler
from hpcbench.batch.schedulers import find_scheduler
from hpcbench.config.bounds import within
from hpcbench.config.json_record import read_record
from staging.errors import DataError, InputError

SCRIPT, RECORD = "job.sh", "job.json"
ADVICE = "ask the scheduler itself"


@dataclass(frozen=True)
class JobRecord:
    """The fields of ``job.json`` that are read again; packed runs are in ``hpcbench.batch.packed_runs``."""

    job_id: str | None
    """Unset while the scheduler has not answered."""
    scheduler: str
    site: str
    submitted: str
    """Time of the submission, in ISO 8601."""
    mark: str = ""
    warn_s: int | None = field(default=None, metadata=within(0, 10**9))


@dataclass(frozen=True)
class JobHandle:
    """A job that was, or may have been, handed to a scheduler."""

    folder: Path
    scheduler: str
    job_id: str
    """Empty if the scheduler's answer was lost."""
    site: str
    mark: str = ""
    """The text that the job carries, by which it is found again."""
    asked: float = 0.0
    """When it was submitted, in seconds since 1970."""


def is_unused(folder: Path) -> bool:
    """Whether a folder is empty, or holds only what a submission left that was killed before it took the folder."""
    return not folder.exists() or all(
        path.name == SCRIPT or path.name.startswith((f".{SCRIPT}.", f".{RECORD}.")) for path in folder.iterdir()
    )


def read_job(folder: Path) -> JobHandle:
    """The job of a run folder: the newest attempt's. Raises ``InputError`` if there is none."""
    path = folder / RECORD
    try:
        record = read_record(JobRecord, path, ADVICE)
    except FileNotFoundError:
        raise InputError(f"{folder} holds no {RECORD}; give the run folder of a job that was submitted") from None
    try:
        asked = datetime.fromisoformat(record.submitted).timestamp()
    except (ValueError, OverflowError) as error:
        raise DataError(path, f"is damaged ({error})", ADVICE) from None
    job_id = newest_id(folder, find_scheduler(record.scheduler)) or record.job_id or ""
    return JobHandle(folder, record.scheduler, job_id, record.site, record.mark, asked)


def mark_of(path: Path) -> str | None:
    """The mark in the record of a submission; ``None`` if there is no record, or if it is damaged."""
    try:
        return read_record(JobRecord, path, ADVICE).mark
    except (DataError, OSError):
        return None


def newest_id(folder: Path, scheduler: Scheduler) -> str:
    """The id of the job that works, or last worked, in a run folder, or of its successor; empty if none has begun."""
    hold = newest_hold(folder)
    if hold is None:
        return ""
    printed, _ = continuation(folder, hold) or ("", 0.0)
    return scheduler.parse_id(printed) or hold.job_id
