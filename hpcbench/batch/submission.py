"""Hands a job to its scheduler, and asks how it stands: by the scheduler's own commands, else by the run folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hpcbench.batch.job import Job
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.script import job_script
from hpcbench.batch.site import Site
from hpcbench.batch.state import State
from hpcbench.results.run_folder import RunFolder, write_atomic
from staging.errors import DataError, InputError
from staging.formats.regular import read_text

SCRIPT, RECORD, NEWEST_ID = "job.sh", "job.json", "job-id"
LIMIT_S = 60
"""How long a scheduler may take to answer."""


@dataclass(frozen=True)
class JobHandle:
    """A job that was handed to a scheduler."""

    folder: Path
    scheduler: str
    job_id: str
    site: str


@dataclass(frozen=True)
class JobStatus:
    """How a job stands."""

    state: State
    reason: str = ""
    told_by: str = ""
    """The command that told it, or ``run folder``."""


def submit(job: Job, site: Site) -> JobHandle:
    """Write the script into the run folder and submit it there.

    Raises ``InputError`` where there is no such scheduler, the folder holds something already, or the job is refused.
    """
    scheduler = SCHEDULERS[site.scheduler]
    if shutil.which(scheduler.COMMAND) is None:
        raise InputError(
            f"site {site.name} has {site.scheduler}, but '{scheduler.COMMAND}' is not on PATH; submit on a login node, "
            "or look at the script with --dry-run"
        )
    write_script(job, site)
    command = scheduler.submit_command(SCRIPT)
    reads_input = getattr(scheduler, "READS_INPUT", False)
    done = ask(command, job.folder, (job.folder / SCRIPT).read_text(encoding="utf-8") if reads_input else "")
    job_id = scheduler.parse_id(done.stdout) if done.returncode == 0 else ""
    if not job_id:
        said = " ".join((done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").split())
        (job.folder / SCRIPT).unlink()
        raise InputError(f"{command[0]} refused the job: {said}; change the job, or the profile of site {site.name}")
    record = {
        "job_id": job_id, "scheduler": site.scheduler, "site": site.name, "nodes": job.nodes,
        "ranks_per_node": job.ranks_per_node, "cores_per_rank": job.cores_per_rank, "gpus_per_rank": job.gpus_per_rank,
        "time_s": job.time_s, "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    write_atomic(job.folder / RECORD, json.dumps(record, indent=2) + "\n")
    return JobHandle(job.folder, site.scheduler, job_id, site.name)


def write_script(job: Job, site: Site) -> Path:
    """The script in a run folder that has none. Raises ``InputError`` where it has, or cannot be made."""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        if any(job.folder.iterdir()):
            raise InputError(f"run folder {job.folder} exists and is not empty; give another --run-dir")
        path = job.folder / SCRIPT
        write_atomic(path, job_script(job, site, SCHEDULERS[site.scheduler]))
        path.chmod(0o755)
    except OSError as error:
        raise InputError(
            f"run folder {job.folder} cannot be made ({error.strerror}); give another --run-dir"
        ) from error
    return path


def read_job(folder: Path) -> JobHandle:
    """The job of a run folder, the newest attempt's. Raises ``InputError`` where there is none."""
    path = folder / RECORD
    try:
        record = json.loads(read_text(path))
        scheduler = SCHEDULERS[record["scheduler"]]
        job_id = str(record["job_id"])
        newest = folder / NEWEST_ID
        if newest.exists():
            job_id = scheduler.parse_id(read_text(newest)) or job_id
        return JobHandle(folder, record["scheduler"], job_id, record["site"])
    except OSError:
        raise InputError(f"{folder} holds no {RECORD}; give the run folder of a job that was submitted") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(path, f"is damaged ({error})", "ask the scheduler itself") from None


def standing(job: JobHandle) -> JobStatus:
    """How the job stands. Commands that are missing or fail say nothing."""
    scheduler = SCHEDULERS[job.scheduler]
    for command in scheduler.state_commands(job.job_id):
        if shutil.which(command[0]) is None:
            continue
        done = ask(command, job.folder)
        found = scheduler.parse_state(done.stdout) if done.returncode == 0 else None
        if found is not None:
            return JobStatus(found[0], found[1], command[0])
    return by_folder(job.folder)


def by_folder(path: Path) -> JobStatus:
    """What the run itself left to tell."""
    folder = RunFolder(path)
    if not folder.summary.exists():
        return JobStatus("unknown", "the scheduler knows it no more, and the run left no summary")
    summary = folder.read_summary()
    state: State = "done" if summary.status in ("success", "target_not_reached") else "failed"
    return JobStatus(state, "" if state == "done" else summary.status, "run folder")


def cancel(job: JobHandle) -> None:
    """Ask the scheduler to end the job. Raises ``InputError`` if it does not take it."""
    command = SCHEDULERS[job.scheduler].cancel_command(job.job_id)
    if shutil.which(command[0]) is None:
        raise InputError(f"'{command[0]}' is not on PATH; cancel job {job.job_id} where it was submitted")
    done = ask(command, job.folder)
    if done.returncode != 0:
        raise InputError(f"{command[0]} did not cancel job {job.job_id}: {' '.join(done.stderr.split())}")


def ask(command: list[str], folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of a scheduler; one that hangs counts as failed."""
    try:
        return subprocess.run(
            command, cwd=folder, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {LIMIT_S} s")
