"""How often a command that waits for jobs asks the scheduler: seconds apart at first, later a minute apart."""

from __future__ import annotations

FIRST_S = 3.0
LONGEST_S = 60.0
S_PER_JOB = 0.1
"""The more jobs a query is about, the more it costs the scheduler."""


def first_pause_s(jobs: int) -> float:
    """Seconds until the first query about this many jobs: 3 up to 30 jobs, 60 from 600 on."""
    return min(LONGEST_S, max(FIRST_S, S_PER_JOB * jobs))
