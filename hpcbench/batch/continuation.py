"""Whether a run that has ended was interrupted, and so is to be continued by another attempt of its job.

The run folder decides, and not the exit code of a launcher: that is 137 for a rank that was killed with the others, and
differs among launchers.
"""

from __future__ import annotations

from pathlib import Path

from hpcbench.batch.script import NEWEST_ID
from hpcbench.results.attempts import Attempts
from hpcbench.results.checkpoint_files import complete, marker
from hpcbench.results.run_folder import RunFolder

STOPPING = ("SIGUSR1", "SIGTERM")
"""Signals by which schedulers stop a run; others are sent by people."""
CONTINUED = {"preempted": "was preempted", "rank_lost": "lost a rank", "hang": "hung"}


def interruption(path: Path, *, cancelled: bool = False) -> tuple[bool, str]:
    """Whether the run in ``path`` is to be continued, and why or why not, in words.

    ``cancelled``: the job's script got SIGTERM, too. Then somebody has cancelled the job, unless the run has found out
    from the scheduler that it is preempted. One that was killed before it could say anything is continued if this
    attempt has written a checkpoint, so that an end that comes again and again at the same point does not use up all
    attempts.
    """
    folder = RunFolder(path)
    attempts = Attempts.read(path).attempts
    cause = attempts[-1].cause if attempts else None
    if cancelled and cause != "preempted":
        return False, "was cancelled"
    if cause == "signal":
        signal = folder.read_summary().signal if folder.summary.exists() else None
        return signal in STOPPING, f"was stopped by {signal or 'a signal'}"
    if cause is not None:
        return cause in CONTINUED, CONTINUED.get(cause, f"ended: {cause.replace('_', ' ')}")
    if has_new_checkpoint(path):
        return True, "was killed after a checkpoint of this attempt"
    return False, "was killed before this attempt wrote a checkpoint; give it more time (--time), or see its log"


def has_new_checkpoint(path: Path) -> bool:
    """Whether a checkpoint is newer than the start of the job's attempt."""
    began = path / NEWEST_ID
    found = complete(RunFolder(path).checkpoints)
    return bool(found) and (not began.exists() or marker(found[-1]).stat().st_mtime >= began.stat().st_mtime)
