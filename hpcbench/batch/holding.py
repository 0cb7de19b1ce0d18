"""Who may take a run folder: one job and attempt at a time works in it.

A hold blocks nobody if its script has ended, or if its job has ended according to the scheduler. It does not block the
attempt that it hands over to, nor the same job once its scheduler has started it again. If the scheduler cannot be
asked, the hold blocks.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import psutil

from hpcbench.batch.holds import Hold, continuation, has_ended, newest_hold, stem, write_hold
from hpcbench.batch.job_record import RECORD, JobHandle, newest_id
from hpcbench.batch.scheduler import ENDED
from hpcbench.batch.schedulers import find_scheduler
from hpcbench.batch.submission import job_status
from staging.errors import DataError
from staging.formats.regular import read_text


class HeldError(Exception):
    """Another job or attempt works in the run folder; the text says which."""


def take_folder(folder: Path, taker: Hold) -> Path:
    """Make ``taker`` the holder of a run folder; returns the name of the hold, without ending. Raises ``HeldError``."""
    if not folder.is_dir():
        raise HeldError(f"run folder {folder} does not exist, or not any more")
    while True:
        check_mark(folder, taker)
        before = newest_hold(folder)
        if before is not None and not may_follow(folder, before, taker):
            refuse_if_held(folder, before, taker)
        try:
            return write_hold(folder, taker, 1 if before is None else before.number + 1)
        except FileExistsError:  # another attempt was faster
            continue


def move_aside(folder: Path, aside: Path) -> None:
    """Rename the folder of a job that has ended, so that a late attempt finds nothing to work in.

    This process holds the folder meanwhile. Raises ``HeldError`` if another job has taken it.
    """
    if not folder.exists():
        return
    taker = Hold.here(str(os.getpid()), 1, "local", "", 0, os.getpid())
    before = newest_hold(folder)
    if before is not None:
        if not has_ended(folder, before) or continuation(folder, before) is not None:
            refuse_if_held(folder, before)
        try:
            write_hold(folder, taker, before.number + 1)
        except FileExistsError:
            raise HeldError(f"run folder {folder} was taken by another job just before") from None
    folder.rename(aside)
    if before is not None:
        stem(aside, before.number + 1).with_suffix(".end").write_text(f"{time.time():.0f} 0\n", encoding="utf-8")


def check_mark(folder: Path, taker: Hold) -> None:
    """Raise ``HeldError`` for the job of a submission that was given up before the folder was submitted again."""
    try:
        mark = json.loads(read_text(folder / RECORD)).get("mark", "")
    except FileNotFoundError:
        return  # a script that was submitted by hand
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(folder / RECORD, f"is damaged ({error})", "remove it if no job works in its folder") from error
    if taker.mark and mark and mark != taker.mark:
        raise HeldError(f"run folder {folder} was submitted again since (as {mark})")


def may_follow(folder: Path, before: Hold, taker: Hold) -> bool:
    """Whether ``taker`` may follow without asking a scheduler: ``before`` has ended, or ``taker`` continues it."""
    if continuation(folder, before) is not None:
        return taker.mark == before.mark and taker.attempt > before.attempt
    if has_ended(folder, before):
        return True
    same_job = (taker.scheduler, taker.job_id) == (before.scheduler, before.job_id)
    return same_job and is_restart(before, taker)


def is_restart(before: Hold, taker: Hold) -> bool:
    """Whether the scheduler has started a job once more, as it does after a node has failed.

    Not every scheduler counts restarts. Without a count, a second start of the script on the same host is a restart
    once the first process is gone.
    """
    if taker.attempt > before.attempt:
        return True
    if before.scheduler == "local":
        return taker.host == before.host  # the number of a process that is gone
    if find_scheduler(before.scheduler).KEEPS_ID:
        return False
    return taker.host != before.host or not is_alive(before)


def is_alive(hold: Hold) -> bool:
    """Whether the script's process still exists on this host."""
    try:
        return psutil.Process(hold.process).create_time() <= hold.began
    except psutil.Error:
        return False


def refuse_if_held(folder: Path, hold: Hold, taker: Hold | None = None) -> None:
    """Raise ``HeldError`` unless the job of a hold, or the one that it hands over to, has certainly ended."""
    scheduler = find_scheduler(hold.scheduler)
    job_id = newest_id(folder, scheduler)
    who = f"run folder {folder} is held by job {hold.job_id}, attempt {hold.attempt}"
    if hold.scheduler == "local" and hold.host != socket.gethostname():
        raise HeldError(f"{who}, on {hold.host}; look there, and remove {stem(folder, hold.number)}.json if it is gone")
    status = job_status(JobHandle(folder, hold.scheduler, job_id, "", hold.mark, hold.began))
    if status.state in ENDED:
        return
    newest = newest_id(folder, scheduler)
    if taker is not None and is_same(newest, taker.job_id) and not is_same(newest, hold.job_id):
        return  # found by its mark: it is the taker itself
    if newest != hold.job_id:
        who += f", which hands over to job {newest}"
    why = f" ({status.reason})" if status.reason else ""
    raise HeldError(f"{who}: {status.state}{why}")


def is_same(one: str, other: str) -> bool:
    """Whether two ids name the same job; some schedulers leave out the name of the server."""
    return one.partition(".")[0] == other.partition(".")[0]


def check_free(folder: Path, own_hold: Path | None = None) -> None:
    """Raise ``HeldError`` if a job other than that of the hold ``own_hold`` holds the run folder."""
    hold = newest_hold(folder)
    if hold is None:
        return
    if own_hold is not None and own_hold.name == str(hold.number):
        return
    if own_hold is not None:
        raise HeldError(f"run folder {folder} is held by job {hold.job_id}, attempt {hold.attempt}, since")
    if continuation(folder, hold) is None and has_ended(folder, hold):
        return
    refuse_if_held(folder, hold)
