"""Whether Slurm takes the nodes of this job for another one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

PREEMPTED = re.compile(r"\bJobState=PREEMPTED\b|\bPreemptTime=\d")
"""In the answer of ``scontrol``; ``PreemptTime`` is ``None`` in a job that goes on."""


def was_preempted(environ: Mapping[str, str], limit_s: float = 3.0) -> bool:
    """Whether Slurm preempts the job of this environment, as its controller says within ``limit_s`` seconds.

    Not so outside of Slurm, and where the controller, or the command ``scontrol``, does not answer.
    """
    job = environ.get("SLURM_JOB_ID", "")
    if not job:
        return False
    try:
        done = subprocess.run(
            ["scontrol", "show", "job", "-o", job], env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and PREEMPTED.search(done.stdout) is not None
