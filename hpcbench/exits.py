"""How a run ends: exit codes, and causes that programs read."""

from __future__ import annotations

from typing import Literal

from staging.errors import Aborted

__all__ = ["ABORTED", "BAD_INPUT", "DONE", "HELD", "TARGET_NOT_REACHED", "Aborted", "Cause"]

DONE = 0
ABORTED = 1
BAD_INPUT = 2
TARGET_NOT_REACHED = 3
HELD = 4
"""The exit code of a job that finds its run folder held by another job or attempt."""

Cause = Literal[
    "target", "epochs", "steps", "diverged", "bad_data", "signal", "preempted", "full_disk", "rank_lost", "hang",
    "error",
]  # fmt: skip
"""Why a run ended, as in ``summary.json``. With the first three it came to its end; the others forced it to end."""
