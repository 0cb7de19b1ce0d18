"""Whether the run of a job was interrupted, so that another attempt of the job must continue it.

The run folder decides, not the launcher's exit code: that is 137 for a rank that was killed with the others, and
differs among launchers.
"""

from __future__ import annotations

import os
from pathlib import Path

from hpcbench.batch.holds import newest_hold, stem
from hpcbench.batch.packed_runs import PackedRuns, packed_runs, run_path
from hpcbench.batch.preemption import was_preempted
from hpcbench.results.attempts import FILE, Attempts
from hpcbench.results.checkpoint_files import NAME, complete, marker
from hpcbench.results.run_folder import CRASH, RunFolder
from hpcbench.results.summary import Summary

STOPPING = ("SIGUSR1", "SIGTERM")
"""Signals with which schedulers stop a run; people send the others."""
ENDS = ("target", "epochs", "steps")
"""Causes of a run that came to its end; only its scores, baselines and page may follow."""
CONTINUED = {"preempted": "was preempted", "rank_lost": "lost a rank", "hang": "hung"}
NO_PROGRESS = "was killed before this attempt wrote a checkpoint; give it more time (--time), or see its log"


def interruption(path: Path, *, cancelled: bool = False) -> tuple[bool, str]:
    """Whether to continue the run in ``path``, or the packed runs of the job there, and why or why not.

    ``cancelled``: the job's script got SIGTERM, too, and not at the time limit. Then somebody has cancelled the job,
    unless the run has found out from the scheduler that it is preempted. A run that was killed before it could report
    anything is continued if this attempt or the one before has written a checkpoint, or if the scheduler says that it
    is preempted. So a node that is still ending the steps of a dead attempt costs one attempt, and a failure that
    recurs at the same point does not use up all of them.
    """
    packed = packed_runs(path)
    if packed is not None:
        return packed_interruption(path, packed, cancelled=cancelled)
    cause = last_cause(path)
    if cause is not None and has_come_to_its_end(path):
        return False, "has ended"
    if cause in ENDS or (cause is not None and not is_of_attempt(path / FILE, path)):
        cause = None  # this attempt was killed: while it wrote the page, or before it wrote a cause of its own
    return run_interruption(path, path, cause, cancelled=cancelled)


def run_interruption(path: Path, job_folder: Path, cause: str | None, *, cancelled: bool) -> tuple[bool, str]:
    """``interruption`` of one run of the job in ``job_folder``; ``cause``: why it ended, ``None`` if it was killed."""
    folder = RunFolder(path)
    if cancelled and cause != "preempted":
        return False, "was cancelled"
    if cause == "signal":
        signal = folder.read_summary().signal if folder.summary.exists() else None
        return signal in STOPPING, f"was stopped by {signal or 'a signal'}"
    if cause is not None:
        return cause in CONTINUED, CONTINUED.get(cause, f"ended: {cause.replace('_', ' ')}")
    return killed_interruption(path, job_folder)


def killed_interruption(path: Path, job_folder: Path) -> tuple[bool, str]:
    """``interruption`` of a run that was killed before it could say why."""
    if has_new_checkpoint(path, job_folder):
        return True, f"was killed after a checkpoint of this attempt{lost_steps(path)}"
    if has_new_checkpoint(path, job_folder, earlier=1):
        return True, "was killed before this attempt wrote a checkpoint, but the one before wrote one"
    if was_preempted(os.environ):
        return True, "was preempted before it began"
    return False, NO_PROGRESS


def packed_interruption(path: Path, packed: PackedRuns, *, cancelled: bool) -> tuple[bool, str]:
    """``interruption`` of a job of packed runs: one run to continue is enough, unless something forbids it.

    A cancellation, a signal that a person sent, and an error that ended the job's own process forbid it. Another
    attempt makes the runs that have not begun if this attempt brought a run to its end.
    """
    if (path / CRASH).exists():
        return False, "ended in an error"
    folders = [run_path(path, name) for name in packed.words]
    unfinished = [folder for folder in folders if folder.is_dir() and not is_over(folder)]
    left = [folder for folder in folders if folder in unfinished or not folder.is_dir()]
    if not left:
        return False, "has ended"
    if cancelled and not any(last_cause(folder) == "preempted" for folder in unfinished):
        return False, "was cancelled"
    judged = [
        (folder.name, *run_interruption(folder, path, last_cause(folder), cancelled=False)) for folder in unfinished
    ]
    forbids = [f"{name} {why}" for (name, again, why), folder in zip(judged, unfinished, strict=True)
               if not again and last_cause(folder) is not None]  # fmt: skip
    allows = [f"{name} {why}" for name, again, why in judged if again]
    if any(is_over(folder) and has_ended_since(folder, path) for folder in folders):
        allows.append(f"had no time for {len(left)} of {len(folders)} runs")
    return bool(allows and not forbids), (*forbids, *allows, NO_PROGRESS)[0]


def has_come_to_its_end(path: Path) -> bool:
    """Whether a run reached its target, or trained as long as it should, in any attempt.

    A run that was asked for more afterwards keeps the summary of that end until it ends again.
    """
    folder = RunFolder(path)
    if not folder.summary.exists():
        return False
    summary = folder.read_summary()
    return summary.complete and summary.status != "aborted"


def is_over(folder: Path) -> bool:
    """Whether a packed run needs no further attempt: it ended, and was not interrupted."""
    if (folder / CRASH).exists():
        return True
    path = RunFolder(folder).summary
    if not path.exists():
        return False
    summary = RunFolder(folder).read_summary()
    return summary.cause not in ("signal", *CONTINUED)


def last_cause(folder: Path) -> str | None:
    """Why the last attempt of a run ended; ``None`` if it was killed."""
    attempts = Attempts.read(folder).attempts
    return attempts[-1].cause if attempts else None


def has_ended_since(folder: Path, job_folder: Path) -> bool:
    """Whether a run has come to its end since this attempt of its job began."""
    ends = [path for path in (folder / CRASH, RunFolder(folder).summary) if path.exists()]
    return any(is_of_attempt(end, job_folder) for end in ends)


def has_new_checkpoint(path: Path, job_folder: Path, *, earlier: int = 0) -> bool:
    """Whether the run has written a checkpoint since its job's newest attempt, or the one ``earlier`` before, began."""
    checkpoints = complete(RunFolder(path).checkpoints)
    return bool(checkpoints) and is_of_attempt(marker(checkpoints[-1]), job_folder, earlier=earlier)


def is_of_attempt(path: Path, job_folder: Path, *, earlier: int = 0) -> bool:
    """Whether a file is newer than the start of the job's newest attempt, or of the one ``earlier`` before."""
    hold = newest_hold(job_folder)
    if hold is None:
        return True
    start = stem(job_folder, hold.number - earlier).with_suffix(".json")
    # Both times are from the filesystem's clock, which may differ from this machine's.
    return start.exists() and path.stat().st_mtime >= start.stat().st_mtime


def is_left_behind(summary: Summary, path: Path, job_folder: Path) -> bool:
    """Whether the summary of the run in ``path`` only says how an earlier attempt of its job was interrupted."""
    return summary.status == "aborted" and not is_of_attempt(RunFolder(path).summary, job_folder)


def lost_steps(path: Path) -> str:
    """What a killed run has to repeat, in words; empty if nothing is known to be lost."""
    folder = RunFolder(path)
    checkpoints = complete(folder.checkpoints)
    match = NAME.fullmatch(checkpoints[-1].stem) if checkpoints else None
    steps = folder.steps_of(folder.steps.name)
    last = max(steps, default=0)
    saved_step = int(match[2]) if match else 0
    if last <= saved_step:
        return ""
    since = f"the checkpoint at step {saved_step}" if checkpoints else "its start, since there was no checkpoint"
    return f" and lost {last - saved_step} step{'s' if last - saved_step > 1 else ''} since {since}"
