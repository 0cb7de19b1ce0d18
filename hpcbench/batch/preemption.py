"""Why Slurm ends this job: preemption or its time limit; and whether it has itself queued the job again."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

RECORD_VARIABLE = "HPCBENCH_JOB_RECORD"
"""Has the answer of ``scontrol`` where a job's script asks on its node for a command in an image, which lacks it."""
PREEMPTED = re.compile(r"\bJobState=PREEMPTED\b|\bPreemptTime=\d")
"""In the answer of ``scontrol``; ``PreemptTime`` is ``None`` for a job that continues."""
OVER_TIME = re.compile(r"\bJobState=TIMEOUT\b|\bReason=TimeLimit\b")
"""In the answer of ``scontrol``, whose state is ``COMPLETING`` until all processes of the job have ended."""
RESTARTS = re.compile(r"\bRestarts=(\d+)")
"""In the answer of ``scontrol``: how often the job was queued again, which grows before its processes end."""


def was_preempted(environ: Mapping[str, str], limit_s: float = 3.0) -> bool:
    """Whether Slurm preempts the job of this environment, with a grace time, according to its controller.

    False outside Slurm, and if the controller, or the command ``scontrol``, does not answer within ``limit_s``.
    """
    return PREEMPTED.search(job_record(environ, limit_s)) is not None


def reached_time_limit(environ: Mapping[str, str], limit_s: float = 3.0) -> bool:
    """Whether Slurm ends the job of this environment because its time limit is reached.

    False outside Slurm, and if the controller does not answer within ``limit_s``.
    """
    return OVER_TIME.search(job_record(environ, limit_s)) is not None


def was_requeued(environ: Mapping[str, str], limit_s: float = 10.0) -> bool:
    """Whether Slurm has queued the job of this environment again: preempted without a grace time, or a node failed.

    False outside Slurm, and if the controller does not answer within ``limit_s``.
    """
    restarts = RESTARTS.search(job_record(environ, limit_s))
    return restarts is not None and int(restarts[1]) > int(environ.get("SLURM_RESTART_COUNT") or 0)


def job_record(environ: Mapping[str, str], limit_s: float) -> str:
    """What the controller says about the job of this environment, in one line; empty if it says nothing."""
    if RECORD_VARIABLE in environ:
        return environ[RECORD_VARIABLE]
    job = environ.get("SLURM_JOB_ID", "")
    if not job:
        return ""
    try:
        done = subprocess.run(
            ["scontrol", "show", "job", "-o", job], env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
