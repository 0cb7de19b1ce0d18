"""The attempts of a resumed run as its page shows them: with the gaps between them, they make up the whole span."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hpcbench.results.attempts import Attempt, Attempts

ENDED = {
    "target": "target reached", "epochs": "all epochs trained", "steps": "all steps trained", "diverged": "diverged",
    "bad_data": "bad data", "signal": "signal", "preempted": "preempted", "full_disk": "disk full",
    "rank_lost": "a rank was lost", "hang": "a rank did not answer", "error": "error",
}  # fmt: skip
"""How an attempt ended, by its cause."""
UNKNOWN = "unknown"
"""A gap that the clock does not tell."""


def attempts_table(attempts: Attempts) -> dict[str, Any]:
    """Rows and footer of the table, in seconds; empty where the run was never resumed."""
    attempt_list = attempts.attempts
    if len(attempt_list) < 2:
        return {}
    gaps = [0.0, *(after.started - before.ended for before, after in pairwise(attempt_list))]
    clock_set_back = min(gaps) < 0
    lines = [
        {
            "number": str(number), "started": _moment(attempt.started), "gap": _gap(gap) if number > 1 else "",
            "wall": f"{attempt.wall_s:,.3f}", "steps": _steps(attempt),
            "ended": _ended(attempt, last=attempt is attempt_list[-1]),
        }
        for number, (attempt, gap) in enumerate(zip(attempt_list, gaps, strict=True), 1)
    ]  # fmt: skip
    return {
        "lines": lines,
        "gap": UNKNOWN if clock_set_back else f"{sum(gaps):,.3f}",
        "clock_set_back": clock_set_back,
        "wall": f"{attempts.wall_s:,.3f}",
        "span": f"{attempt_list[-1].ended - attempt_list[0].started:,.3f}",
        "killed": any(attempt.cause is None for attempt in attempt_list[:-1]),
    }


def _gap(seconds: float) -> str:
    return f"{seconds:,.3f}" if seconds >= 0 else UNKNOWN


def _moment(started: float) -> str:
    """``22 November, 17:05:03`` in UTC."""
    moment = datetime.fromtimestamp(started, UTC)
    return f"{moment.day} {moment:%B, %H:%M:%S}"


def _steps(attempt: Attempt) -> str:
    if attempt.last_step <= attempt.first_step:
        return "none"
    return f"{attempt.first_step + 1:,} to {attempt.last_step:,}"


def _ended(attempt: Attempt, *, last: bool) -> str:
    if attempt.world_size < 0:
        return "not recorded"
    if attempt.cause is None:
        return "no end was written" if last else "killed"
    return ENDED.get(attempt.cause, attempt.cause.replace("_", " "))
