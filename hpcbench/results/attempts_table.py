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


def attempts_table(attempts: Attempts) -> dict[str, Any]:
    """Rows and footer of the table, in seconds; empty where the run was never resumed."""
    found = attempts.attempts
    if len(found) < 2:
        return {}
    gaps = [0.0, *(after.started - before.ended for before, after in pairwise(found))]
    lines = [
        {
            "number": str(number), "started": _moment(each.started), "gap": f"{gap:,.3f}" if number > 1 else "",
            "wall": f"{each.wall_s:,.3f}", "steps": _steps(each), "ended": _ended(each, last=each is found[-1]),
        }
        for number, (each, gap) in enumerate(zip(found, gaps, strict=True), 1)
    ]  # fmt: skip
    return {
        "lines": lines,
        "gap": f"{sum(gaps):,.3f}",
        "wall": f"{attempts.wall_s:,.3f}",
        "span": f"{found[-1].ended - found[0].started:,.3f}",
        "killed": any(each.cause is None for each in found[:-1]),
    }


def _moment(started: float) -> str:
    """``22 November, 17:05:03`` in UTC."""
    moment = datetime.fromtimestamp(started, UTC)
    return f"{moment.day} {moment:%B, %H:%M:%S}"


def _steps(each: Attempt) -> str:
    if each.last_step <= each.first_step:
        return "none"
    return f"{each.first_step + 1:,} to {each.last_step:,}"


def _ended(each: Attempt, *, last: bool) -> str:
    if each.cause is None:
        return "no end was written" if last else "killed"
    return ENDED.get(each.cause, each.cause.replace("_", " "))
