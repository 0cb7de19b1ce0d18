"""Whether a session on this machine is that of a local job, since the number of a process is used again."""

from __future__ import annotations

import contextlib
import socket

import psutil

from hpcbench.batch.holds import Hold, continuation, has_ended, newest_hold, stem
from hpcbench.batch.job_record import JobHandle
from hpcbench.batch.scheduler import JobStatus

CLOCK_S = 5.0
"""Seconds by which the start of a process and a time that was recorded for it may differ."""


def session_status(job: JobHandle, session: JobStatus | None) -> JobStatus | None:
    """The status of a local job, if ``session`` is that of the session on this machine that has its number.

    ``None`` if the job has ended, so that no session here is its own. Raises ``DataError`` for a damaged hold.
    """
    hold = newest_hold(job.folder)
    if hold is not None and hold.host not in ("", socket.gethostname()):
        if has_ended(job.folder, hold) and continuation(job.folder, hold) is None:
            return None
        gone = f"remove {stem(job.folder, hold.number)}.json if it is gone"
        return JobStatus("unknown", f"it began on {hold.host}; look there, and {gone}")
    return session if session is not None and is_session_of(job, hold) else None


def is_session_of(job: JobHandle, hold: Hold | None) -> bool:
    """Whether the session on this machine with the number of a job is its own, by the first process of that session.

    The first process of a job has the job's mark as its last word, unless the script was started by hand, and it began
    before the hold. Ranks may outlive it; while they do, no other process gets its number, except after a restart.
    """
    recorded = job.asked if hold is None else hold.began
    try:
        first = psutil.Process(int(job.job_id))
        began = first.create_time()
    except psutil.Error:
        return recorded >= psutil.boot_time()
    with contextlib.suppress(psutil.Error):
        if job.mark and first.cmdline()[-1:] == [job.mark]:
            return True
    if recorded < psutil.boot_time() or began > recorded + CLOCK_S:
        return False
    return hold is not None or began >= recorded - CLOCK_S
