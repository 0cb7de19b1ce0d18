"""How a run of a study stands, read from its folder alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcbench.results.run_folder import write_atomic
from hpcbench.results.summary import Summary
from staging.errors import DataError
from staging.formats.regular import read_text

Status = Literal["reached", "missed", "diverged", "crashed", "interrupted", "absent"]

FINAL: tuple[Status, ...] = ("reached", "missed", "diverged", "crashed")
"""Nothing more is done for such a run, unless crashed ones are asked to be tried again."""

CRASH = "crash.json"
"""What a study writes into the folder of a run that ended without saying why."""


@dataclass(frozen=True)
class Outcome:
    """The end of a run; ``summary`` is unset where it left none."""

    status: Status
    reason: str = ""
    summary: Summary | None = None

    @property
    def final(self) -> bool:
        """Whether the run is done with."""
        return self.status in FINAL


def read_outcome(folder: Path) -> Outcome:
    """What became of the run in ``folder``; a damaged summary counts as a crash."""
    if not folder.is_dir():
        return Outcome("absent")
    if (folder / CRASH).exists():
        return Outcome("crashed", _crash_reason(folder / CRASH))
    path = folder / "summary.json"
    if not path.exists():
        return Outcome("interrupted", "ended without a summary")
    try:
        summary = Summary.from_json(read_text(path), path)
    except (DataError, OSError) as error:
        return Outcome("crashed", str(error))
    return Outcome(judge(summary), summary.reason, summary)


def judge(summary: Summary) -> Status:
    """The status of a run that left a summary."""
    if summary.status == "success":
        return "reached"
    if summary.status == "target_not_reached":
        return "missed"
    causes: dict[str | None, Status] = {
        "diverged": "diverged", "signal": "interrupted", "preempted": "interrupted",
    }  # fmt: skip
    return causes.get(summary.cause, "crashed")


def record_crash(folder: Path, exit_code: int, reason: str) -> None:
    """Write down how a run ended that could not do so itself."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / CRASH, json.dumps({"exit_code": exit_code, "reason": reason}, indent=2) + "\n")


def _crash_reason(path: Path) -> str:
    try:
        return str(json.loads(read_text(path))["reason"])
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return f"{path.name} cannot be read"
