"""``hpcbench jobs``: the status of submitted jobs, and their cancellation."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.exits import BAD_INPUT, DONE, HELD
from staging.errors import InputError
from staging.number_options import MOST_NODES, add_whole
from staging.print_line import print_line

if TYPE_CHECKING:
    from hpcbench.batch.job_record import JobHandle
    from hpcbench.batch.scheduler import JobStatus

DESCRIPTION = """\
Show the status of the jobs of run folders, from the scheduler, else from what the run left.

  hpcbench jobs runs/cosmoflow-mlperf-20260512-101500
                                            with the node-hours of each attempt
  hpcbench jobs runs/*                      folders without a job are left out
  hpcbench jobs --cancel runs/cosmoflow-mlperf-20260512-101500
"""

SHORT = 20
"""Most characters of a reason that fit in a table; longer ones are printed below it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="run folders")
    parser.add_argument("--cancel", action="store_true", help="cancel these jobs")
    script = parser.add_argument_group("for job scripts, on one run folder")
    script.add_argument("--take", metavar="ID", help="let the job with this id hold the folder, and print the name of "
                        "the hold; exit code 4 if another job holds the folder")  # fmt: skip
    add_whole(script, "--attempt", 1, 10**9, "with --take: the attempt number", default=1)
    add_whole(script, "--process", 0, 2**31, "with --take: the script's process", default=0)
    add_whole(script, "--nodes", 1, MOST_NODES, "with --take: the nodes of the job", default=1)
    script.add_argument("--scheduler", default="local", help="with --take: slurm, pbs, lsf, flux or local")
    script.add_argument("--mark", default="", help="with --take: the mark that the job carries in its scheduler")
    script.add_argument("--interrupted", action="store_true", help="say whether the run was interrupted and is to be "
                        "continued (exit code 0, else 1)")  # fmt: skip
    script.add_argument("--cancelled", action="store_true", help="with --interrupted: the script got SIGTERM")
    script.add_argument("--last-attempt", action="store_true", help="with --interrupted: the job has no attempt left")
    script.add_argument("--hold", type=Path, help="with --interrupted: the name that --take printed")


def run(args: argparse.Namespace) -> int:
    """Print a line for each job, or do what a job script asks."""
    if args.take is not None:
        return take(args)
    if args.interrupted:
        return say_interruption(one_folder(args, "--interrupted"), args.cancelled, args.last_attempt, args.hold)
    from hpcbench.batch.job_record import RECORD

    several = len(args.folders) > 1
    folders = [folder for folder in args.folders if not several or (folder / RECORD).exists()]
    return cancel_each(folders) if args.cancel else show(folders)


def cancel_each(folders: list[Path]) -> int:
    """Cancel the jobs of run folders; report those that cannot be cancelled, and cancel the others."""
    from hpcbench.batch.job_record import read_job
    from hpcbench.batch.submission import cancel

    refused = 0
    for folder in folders:
        try:
            job = read_job(folder)
            cancel(job)
        except InputError as error:
            refused += 1
            print_line(f"hpcbench: error: {error}")
        else:
            print(f"job {job.job_id} of {folder} is being cancelled", flush=True)
    return BAD_INPUT if refused else DONE


def one_folder(args: argparse.Namespace, option: str) -> Path:
    """The folder of an option that takes one. Raises ``InputError`` for several."""
    if len(args.folders) != 1:
        raise InputError(f"{option} takes one run folder, not {len(args.folders)}")
    return Path(args.folders[0])


def show(folders: list[Path]) -> int:
    """Print the status of the jobs of run folders and what their users should know; for one folder also the attempts.

    Among several folders, a damaged one gets a row that says so. Raises ``InputError`` if the only folder is damaged.
    """
    from hpcbench.batch.job_record import read_job
    from hpcbench.batch.submission import job_statuses
    from hpcbench.results.tables import table, wrapped

    jobs: list[JobHandle] = []
    damaged: dict[Path, str] = {}
    for folder in folders:
        try:
            jobs.append(read_job(folder))
        except InputError as error:
            damaged[folder] = str(error)
    statuses, rows, said = dict(zip([job.folder for job in jobs], job_statuses(jobs), strict=True)), {}, []
    for job in jobs:
        try:
            rows[job.folder], told = job_row(job, statuses[job.folder], alone=len(folders) == 1)
            said += told
        except InputError as error:
            damaged[job.folder] = str(error)
    if damaged and len(folders) == 1:
        raise InputError(damaged[folders[0]])
    rows |= {folder: [str(folder), "-", "-", "-", "damaged", why] for folder, why in damaged.items()}
    heads = ("run folder", "job", "site", "node-hours", "state", "why")
    print(table(heads, [rows[folder] for folder in folders]) if rows else "none of these folders has a job")
    said += [wrapped(f"{folder}: {rows[folder][-1]}") for folder in folders if len(rows[folder][-1]) > SHORT]
    for text in said:
        print(f"\n{text}")
    return BAD_INPUT if damaged else DONE


def job_row(job: JobHandle, status: JobStatus, *, alone: bool) -> tuple[list[str], list[str]]:
    """The row of a job in the table, and the text below it. Raises ``DataError`` for a damaged run folder."""
    from hpcbench.batch.node_hours import attempts_table, used
    from hpcbench.batch.warning_time import too_short
    from hpcbench.results.tables import wrapped

    hours = used(job.folder, running=status.state == "running")
    attempts = [attempts_table(hours)] if alone and hours.attempts else []
    row = [str(job.folder), job.job_id, job.site, hours.words, status.state, status.reason]
    return row, [*map(wrapped, too_short(job.folder)), *attempts]


def take(args: argparse.Namespace) -> int:
    """Let a job hold the folder, for its script, which reads the name of the hold from standard output."""
    from hpcbench.batch.continuation import lost_steps
    from hpcbench.batch.holding import HeldError, take_folder
    from hpcbench.batch.holds import Hold, has_ended, read_holds
    from hpcbench.batch.schedulers import find_scheduler
    from hpcbench.batch.warning_time import comparison
    from staging.ranks.signals import WARNING_VARIABLE

    folder = one_folder(args, "--take")
    find_scheduler(args.scheduler)
    taker = Hold.here(args.take, args.attempt, args.scheduler, args.mark, args.nodes, args.process)
    try:
        name = take_folder(folder, taker)
    except HeldError as error:
        print_line(f"hpcbench: error: {error}; job {args.take}, attempt {args.attempt}, ends here")
        return HELD
    print(name, flush=True)
    *_, before, _ = [None, *read_holds(folder)]
    if before is not None and not has_ended(folder, before):
        print_line(f"hpcbench: job {before.job_id}, attempt {before.attempt}, was killed{lost_steps(folder)}")
    warn_s = os.environ.get(WARNING_VARIABLE, "")
    said = comparison(folder, int(warn_s))[0] if warn_s.isdecimal() else ""
    if said:
        print_line(f"hpcbench: {said}")
    return 0


def say_interruption(folder: Path, cancelled: bool, last: bool, hold: Path | None) -> int:
    """Tell a job's script whether to continue the run; if so, the hold hands over before the next attempt is queued.

    After the ``last`` attempt of a job it never is, and the line says who may continue it.
    """
    from hpcbench.batch.continuation import interruption
    from hpcbench.batch.holds import announce_continuation, newest_hold
    from hpcbench.batch.preemption import RECORD_VARIABLE, reached_time_limit, was_preempted, was_requeued
    from hpcbench.batch.warning_time import too_short

    if cancelled and was_requeued(os.environ):
        print("hpcbench: Slurm has queued the job again; its next attempt continues the run", flush=True)
        return 1
    over_time = cancelled and reached_time_limit(os.environ)
    # In an image the run cannot have asked Slurm, but its script has.
    preempted = cancelled and RECORD_VARIABLE in os.environ and was_preempted(os.environ)
    is_interrupted, why = interruption(folder, cancelled=cancelled and not over_time and not preempted)
    if over_time:
        why = f"reached its time limit and {why}"
    newest = newest_hold(folder)
    if hold is not None and newest is not None:
        if hold.name != str(newest.number):
            is_interrupted, why = False, f"is held by job {newest.job_id}, attempt {newest.attempt}, since"
        elif is_interrupted and not last:
            announce_continuation(folder, newest)
    by_hand = is_interrupted and last
    left = " by itself: no attempt is left (--attempts); submit the job's script again" if by_hand else ""
    is_interrupted = is_interrupted and not last
    print(f"hpcbench: the run {why}; {'continued' if is_interrupted else 'not continued'}{left}", flush=True)
    for line in too_short(folder):
        print(f"hpcbench: {line}", flush=True)
    return 0 if is_interrupted else 1
