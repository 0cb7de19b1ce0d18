"""Hand a job to its scheduler, ask for its status, and cancel it.

Before a job is submitted, it is recorded in ``job.json`` of the run folder, without an id. Only an explicit refusal
removes the record. If the answer is lost (this process was killed, or the scheduler did not answer), the job may or may
not be in the queue: it is found again by a mark that it carries, or by the id that its script writes into the folder,
and until then nothing is submitted for this folder. The same holds for the job that an attempt hands over to.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcbench.batch.continuation import is_left_behind
from hpcbench.batch.failure_reason import failure_reason, newest_log, read_job_log
from hpcbench.batch.holds import continuation, last_exit_code, newest_hold, write_continuation
from hpcbench.batch.job import Job
from hpcbench.batch.job_record import RECORD, SCRIPT, JobHandle, is_unused, mark_of, newest_id, read_job
from hpcbench.batch.local_session import session_status
from hpcbench.batch.packed_runs import packed_runs
from hpcbench.batch.scheduler import ENDED, JobStatus, Known, Reply, UnreachableError
from hpcbench.batch.schedulers import find_scheduler
from hpcbench.batch.script import job_script
from hpcbench.batch.site import Site
from hpcbench.batch.submission_environment import command_environment
from hpcbench.results.run_folder import RunFolder, write_atomic
from hpcbench.results.summary import Summary
from staging.atomic import make_folder, sync_file, sync_folder, take_name
from staging.errors import DataError, InputError
from staging.formats.regular import read_text

LIMIT_S = 60
"""Seconds that a scheduler may take to answer."""
SETTLED_S = 300
"""A submission without an answer may reach the queue up to this much later; then every message has timed out."""
MOST_IDS = 500
"""Most jobs in one query, since the length of a command line is limited."""


class UnansweredError(InputError):
    """Raised if it is not known whether a job is in the queue; nothing was removed."""


def submit(job: Job, site: Site) -> JobHandle:
    """Write the script into the run folder and submit it there.

    Raises ``InputError`` if the scheduler is unknown or not on this machine, if the folder is not empty or another
    submission takes it meanwhile, or if the job is refused, which leaves the folder as it was: absent or empty;
    ``UnansweredError`` if the answer is lost.
    """
    scheduler = find_scheduler(site.scheduler)
    if shutil.which(scheduler.COMMAND) is None:
        raise InputError(
            f"site {site.name} has {site.scheduler}, but '{scheduler.COMMAND}' is not on PATH; submit on a login node, "
            "or look at the script with --dry-run"
        )
    record = {
        "job_id": None, "mark": job.mark, "scheduler": site.scheduler, "site": site.name, "nodes": job.nodes,
        "ranks_per_node": job.ranks_per_node, "cores_per_rank": job.cores_per_rank, "gpus_per_rank": job.gpus_per_rank,
        "time_s": job.time_s, "warn_s": job.warn_s, "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
        **({} if job.packed is None else {"packed_runs": job.packed.as_dict()}),
    }  # fmt: skip
    script = job_script(job, site, scheduler)
    was_there = job.folder.exists()
    try:
        prepare(job, record, script)
    except OSError as error:
        raise InputError(
            f"run folder {job.folder} cannot be made ({error.strerror}); give another --run-dir"
        ) from error
    command = scheduler.submit_command(SCRIPT, job.mark)
    reply = ask(command, job.folder, script if scheduler.READS_INPUT else "", script)
    is_ours = is_of_mark(job.folder, job.mark)
    if scheduler.is_refusal(reply) and is_ours:
        (job.folder / RECORD).unlink()
        (job.folder / SCRIPT).unlink()
        if not was_there:
            with contextlib.suppress(OSError):  # not empty: another submission has taken it since
                job.folder.rmdir()
    if scheduler.is_refusal(reply):
        raise InputError(
            f"{command[0]} refused the job: {reply.words}; change the job, or the profile of site {site.name}"
        )
    job_id = scheduler.parse_id(reply.printed) if reply.exit_code == 0 else ""
    if not job_id:
        raise UnansweredError(
            f"{command[0]} did not say whether it took the job ({reply.words}); see: hpcbench jobs {job.folder}"
        )
    if not is_ours:
        raise InputError(
            f"run folder {job.folder} was submitted again while {command[0]} took job {job_id}, which would end at its "
            f"first lines; cancel it: {shlex.join(scheduler.cancel_command(job_id))}"
        )
    write_atomic(job.folder / RECORD, json.dumps(record | {"job_id": job_id}, indent=2) + "\n")
    return read_job(job.folder)


def prepare(job: Job, record: dict[str, Any], script: str) -> None:
    """Take the folder by writing ``record``, then write the script. Raises ``InputError`` if the folder is taken."""
    make_folder(job.folder)
    part = job.folder / f".{RECORD}.{os.getpid()}.{job.mark[-8:]}"
    if (job.folder / RECORD).exists():
        before, status = settled(read_job(job.folder))
        if status is not None and status.state == "lost" and newest_log(job.folder) is None:
            give_up(before, part)
    if not is_unused(job.folder):
        raise taken(job.folder)
    try:
        part.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        sync_file(part)
        take_name(part, job.folder / RECORD)
        sync_folder(job.folder)
    except FileExistsError:
        raise taken(job.folder) from None
    finally:
        part.unlink(missing_ok=True)
    write_script(job, script)


def write_script(job: Job, script: str) -> None:
    """Write the script beside the record. Raises ``InputError`` if another submission has taken the folder since."""
    path = job.folder / SCRIPT
    if is_of_mark(job.folder, job.mark):
        write_atomic(path, script)
        path.chmod(0o755)
    if not is_of_mark(job.folder, job.mark):
        raise taken(job.folder)


def give_up(before: JobHandle, aside: Path) -> None:
    """Remove the record of a submission that never reached the queue, unless another one has taken the folder since."""
    path = before.folder / RECORD
    with contextlib.suppress(FileNotFoundError):  # another submission was faster
        path.rename(aside)
        if mark_of(aside) != before.mark:
            with contextlib.suppress(FileExistsError):
                take_name(aside, path)
        aside.unlink(missing_ok=True)


def taken(folder: Path) -> InputError:
    """The error for a run folder that another submission has taken, or that holds something else."""
    return InputError(f"run folder {folder} exists and is not empty; give another --run-dir")


def is_of_mark(folder: Path, mark: str) -> bool:
    """Whether the folder still belongs to the submission with ``mark``: no other one has given it up and taken over."""
    return mark_of(folder / RECORD) == mark


def job_status(job: JobHandle) -> JobStatus:
    """The status of one job; see ``job_statuses``."""
    return job_statuses([job])[0]


def job_statuses(jobs: Sequence[JobHandle]) -> list[JobStatus]:
    """The status of each job, with one query to each scheduler for every 500 jobs.

    A job that its scheduler has forgotten is judged by its folder. The status is ``unknown`` if the scheduler cannot be
    asked, or if a submission has no answer and is too recent to be given up.
    """
    status_by_folder: dict[Path, JobStatus] = {}
    for name in dict.fromkeys(job.scheduler for job in jobs):
        settled_jobs = [settled(job) for job in jobs if job.scheduler == name]
        status_by_folder |= {job.folder: status for job, status in settled_jobs if status is not None}
        status_by_folder |= queried(name, [job for job, status in settled_jobs if status is None])
        for job in [
            job for job, status in settled_jobs if status is None and status_by_folder[job.folder].state in ENDED
        ]:
            status_by_folder[job.folder] = followed(job, status_by_folder[job.folder])
    return [status_by_folder[job.folder] for job in jobs]


def settled(job: JobHandle) -> tuple[JobHandle, JobStatus | None]:
    """The job with its id and ``None``; if it has no id and cannot be found, the job and its status."""
    if job.job_id:
        return job, None
    scheduler = find_scheduler(job.scheduler)
    was_asked = (job.folder / SCRIPT).exists()
    try:
        ids = scheduler.find(job.mark, lambda command: ask(command, job.folder)) if was_asked else []
    except UnreachableError as error:
        return job, JobStatus("unknown", f"submitted without an answer, and {scheduler.TITLE} cannot be asked: {error}")
    if ids:
        record = json.loads(read_text(job.folder / RECORD))
        write_atomic(job.folder / RECORD, json.dumps(record | {"job_id": ids[-1]}, indent=2) + "\n")
        return replace(job, job_id=ids[-1]), None
    left = job.asked + SETTLED_S - time.time()
    if left > 0:
        what = "submitted without an answer; no queue has it" if was_asked else "not submitted so far, or never"
        return job, JobStatus("unknown", f"{what}, which is certain in {left:.0f} s")
    return job, JobStatus("lost", why_lost(job.folder))


def why_lost(folder: Path) -> str:
    """Why no queue has a job that never held its run folder; one that left a log there did start."""
    log = newest_log(folder)
    if log is None:
        return "never reached the queue"
    said = failure_reason(read_job_log(folder)) or "nothing was printed"
    return f"ended before it held the run folder, as where a module cannot be loaded; {log.name}: {said}"


def queried(name: str, jobs: Sequence[JobHandle]) -> dict[Path, JobStatus]:
    """What the scheduler ``name`` says about jobs with ids; for jobs that it has forgotten, what their folders say."""
    status_by_folder: dict[Path, JobStatus] = {}
    for start in range(0, len(jobs), MOST_IDS):
        some = jobs[start : start + MOST_IDS]
        try:
            known: Known = find_scheduler(name).query([job.job_id for job in some], ask)
        except UnreachableError as error:
            reason = f"{find_scheduler(name).TITLE} cannot be asked: {error}"
            status_by_folder |= {job.folder: JobStatus("unknown", reason) for job in some}
        else:
            for job in some:
                found = known.get(job.job_id)
                found = session_status(job, found) if name == "local" else found
                status_by_folder[job.folder] = in_own_words(job.folder, found)
    return status_by_folder


def followed(job: JobHandle, ended: JobStatus) -> JobStatus:
    """The status of a run whose job has ended: that of the job that it handed over to, if there is one."""
    scheduler = find_scheduler(job.scheduler)
    newest = newest_id(job.folder, scheduler)
    if newest and newest != job.job_id:  # the run was handed over after the handle was read
        return job_status(replace(job, job_id=newest))
    hold = newest_hold(job.folder)
    announced = None if hold is None else continuation(job.folder, hold)
    if hold is None or announced is None or scheduler.KEEPS_ID or scheduler.parse_id(announced[0]):
        return ended
    try:
        ids = scheduler.find(job.mark, lambda command: ask(command, job.folder))
        known = scheduler.query(ids, ask) if ids else {}
    except UnreachableError as error:
        return JobStatus("unknown", f"continued by another job, and {scheduler.TITLE} cannot be asked: {error}")
    alive = [job_id for job_id in ids if job_id in known and known[job_id].state in ("waiting", "running")]
    if alive:
        write_continuation(job.folder, hold, alive[-1])
        return known[alive[-1]]
    left = announced[1] + SETTLED_S - time.time()
    if left > 0:
        return JobStatus("unknown", f"continued by a job that no queue has, which is certain in {left:.0f} s")
    return ended


def in_own_words(path: Path, status: JobStatus | None) -> JobStatus:
    """The status of an ended job according to its run: an exit code of 3 is a missed target, not a failure."""
    if status is None:
        try:
            return by_folder(path)
        except DataError as error:
            return JobStatus("lost", f"the scheduler no longer knows it, and {error}")
    if status.state not in ("failed", "done"):
        return status
    try:
        summary = current_summary(path)
    except DataError:
        return status
    if summary is None:
        said = failure_reason(read_job_log(path)) if status.state == "failed" else ""
        return replace(status, reason=said or status.reason)
    run_status = by_summary(summary)
    return replace(run_status, source=status.source) if run_status.reason or run_status.state == "done" else status


def by_folder(path: Path) -> JobStatus:
    """The status according to the files that the run left; for a job of packed runs, according to its script's end."""
    summary = current_summary(path)
    if summary is not None:
        return by_summary(summary)
    said = failure_reason(read_job_log(path))
    code = None if packed_runs(path) is None else last_exit_code(path)
    if code is not None:
        reason = (said or f"exit code {code}") if code else ""
        return JobStatus("failed" if code else "done", reason, "run folder")
    return JobStatus("lost", said or "the scheduler no longer knows it, and the run left no summary")


def current_summary(path: Path) -> Summary | None:
    """The summary of a run, unless it has none, or only one that an earlier attempt left. Raises ``DataError``."""
    folder = RunFolder(path)
    summary = folder.read_summary() if folder.summary.exists() else None
    return None if summary is None or is_left_behind(summary, path, path) else summary


def by_summary(summary: Summary) -> JobStatus:
    """The status according to the summary of the run."""
    if summary.status == "success":
        return JobStatus("done", "", "run folder")
    if summary.status == "target_not_reached":
        return JobStatus("done", "target missed", "run folder")
    return JobStatus("failed", summary.reason or summary.status, "run folder")


def cancel(job: JobHandle) -> None:
    """Ask the scheduler to end the job. Raises ``InputError`` if it does not accept that.

    Without a scheduler, the number of a job that has ended may be that of another process: only a job that runs is
    cancelled.
    """
    job, status = settled(job)
    if status is None and job.scheduler == "local":
        status = job_status(job)
        if status.state == "running":
            status = None
        elif status.state in ENDED:
            raise InputError(f"job {job.job_id} of {job.folder} cannot be cancelled: it has ended ({status.state})")
    if status is not None:
        raise InputError(f"the job of {job.folder} cannot be cancelled: {status.reason}")
    command = find_scheduler(job.scheduler).cancel_command(job.job_id)
    if shutil.which(command[0]) is None:
        raise InputError(f"'{command[0]}' is not on PATH; cancel job {job.job_id} where it was submitted")
    reply = ask(command, job.folder)
    if reply.exit_code != 0:
        raise InputError(f"{command[0]} did not cancel job {job.job_id}: {reply.words}")


def ask(command: Sequence[str], folder: Path | None = None, text: str = "", script: str = "") -> Reply:
    """Run a scheduler's command in ``folder``, with ``text`` as input; ``script``: what it submits.

    Raises ``UnreachableError`` if it is missing.
    """
    if shutil.which(command[0]) is None:
        raise UnreachableError(f"'{command[0]}' is not on PATH")
    try:
        done = subprocess.run(
            command, cwd=folder, input=text, capture_output=True, text=True, errors="replace", timeout=LIMIT_S,
            check=False, env=command_environment(os.environ, script),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Reply(None, "", f"no answer within {LIMIT_S} s")
    return Reply(done.returncode, done.stdout, done.stderr)
