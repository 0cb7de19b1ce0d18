"""``hpcbench jobs``: the status of submitted jobs, and how they are cancelled."""

from __future__ import annotations

import argparse
from pathlib import Path

from staging.errors import InputError

HELP = "show the status of submitted jobs, or cancel them"
DESCRIPTION = """\
The status of the jobs of run folders, from the scheduler, else from what the run left.

  hpcbench jobs runs/cosmoflow-mlperf-20260512-101500
  hpcbench jobs runs/*                      folders without a job are left out
  hpcbench jobs --cancel runs/cosmoflow-mlperf-20260512-101500
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="run folders")
    parser.add_argument("--interrupted", action="store_true", help="for job scripts: say whether the run in the folder "
                        "was interrupted and is to be continued (exit code 0, else 1)")  # fmt: skip
    parser.add_argument("--cancelled", action="store_true", help="with it: the script got SIGTERM")
    parser.add_argument("--cancel", action="store_true", help="cancel these jobs")


def run(args: argparse.Namespace) -> int:
    """A line for each job."""
    if args.interrupted:
        return say_interruption(args.folders, args.cancelled)
    from hpcbench.batch.submission import RECORD, cancel, job_statuses, read_job
    from hpcbench.results.tables import table

    several = len(args.folders) > 1
    jobs = [read_job(folder) for folder in args.folders if not several or (folder / RECORD).exists()]
    if args.cancel:
        for job in jobs:
            cancel(job)
            print(f"job {job.job_id} of {job.folder} is being cancelled")
        return 0
    rows = []
    for job, found in zip(jobs, job_statuses(jobs), strict=True):
        rows.append([str(job.folder), job.job_id, job.site, found.state, found.reason])
    print(table(("run folder", "job", "site", "state", "why"), rows) if rows else "none of these folders has a job")
    return 0


def say_interruption(folders: list[Path], cancelled: bool) -> int:
    """Whether the run of a job is to be continued, for its script."""
    from hpcbench.batch.continuation import interruption

    if len(folders) != 1:
        raise InputError(f"--interrupted takes one run folder, not {len(folders)}")
    is_interrupted, why = interruption(folders[0], cancelled=cancelled)
    print(f"hpcbench: the run {why}; {'continued' if is_interrupted else 'not continued'}", flush=True)
    return 0 if is_interrupted else 1
