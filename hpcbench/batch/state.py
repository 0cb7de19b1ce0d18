"""How a job stands, in words that all schedulers share."""

from __future__ import annotations

from typing import Literal

State = Literal["waiting", "running", "done", "failed", "cancelled", "time limit", "preempted", "unknown"]
"""``unknown``: the scheduler has forgotten the job, and its folder does not tell either."""
ENDED = ("done", "failed", "cancelled", "time limit", "preempted")
