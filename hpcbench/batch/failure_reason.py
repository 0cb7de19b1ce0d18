"""Why a run without a summary ended, from what it, its launcher and its scheduler printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from staging.errors import DataError
from staging.formats.regular import read_text

LOGS = ("job*.log", "hpcbench.[oe]*")
"""The files that a job of a run folder prints to."""
ATTEMPT = re.compile(r"hpcbench: job \S+, attempt \d+, ")
"""The first line of each attempt; schedulers append the attempts of one job to one log."""
OWN = re.compile(r"(?:^|[\s:>\]])hpcbench: (?:error|aborted): (?P<reason>\S.*)")
"""A line that the suite itself printed; launchers may put the rank before it."""
WRONG = re.compile(r"\b(?:\w*Error|\w*Exception|error|aborted):")
LAUNCHER = re.compile(r"^(?:srun|slurmstepd|mpiexec|mpirun|prterun|jsrun|flux|\[proxy|\[mpiexec|[\w.-]+: rank \d+ )")
"""Launchers report every rank that they ended, after the one that ended by itself."""
REPORT = "Sender: LSF System "
"""Begins the report, below a line of dashes, that LSF appends to what a job printed, with the job's whole script."""
LONGEST = 300


def failure_reason(lines: Sequence[str]) -> str:
    """Why the last attempt in ``lines`` ended: the suite's first message, else the most telling line; may be empty."""
    said = [line.strip() for line in without_report(last_attempt(lines)) if line.strip()]
    if reason := own_reason(said):
        return reason
    wrong = [line for line in said if WRONG.search(line)]
    of_launcher = [line for line in wrong if LAUNCHER.match(line)]
    of_program = [line for line in wrong if not LAUNCHER.match(line)]
    return (of_program[-1:] or of_launcher[:1] or said[-1:] or [""])[0][:LONGEST]


def own_reason(lines: Sequence[str]) -> str:
    """The suite's own first message on the end; other ranks end because of that one, and say so later."""
    message = next((match for line in lines if (match := OWN.search(line))), None)
    return message["reason"].strip()[:LONGEST] if message else ""


def last_attempt(lines: Sequence[str]) -> Sequence[str]:
    """The lines from the beginning of the last attempt on; all lines if none marks the beginning of an attempt."""
    begins = [number for number, line in enumerate(lines) if ATTEMPT.match(line)]
    return lines[begins[-1] :] if begins else lines


def without_report(lines: Sequence[str]) -> Sequence[str]:
    """The lines before LSF's report."""
    place = next((place for place, line in enumerate(lines) if line.startswith(REPORT)), None)
    return lines if place is None else lines[: max(0, place - 1)]


def newest_log(path: Path) -> Path | None:
    """The newest log of a job in the run folder ``path``; ``None`` if no job has printed there."""
    try:
        logs = [log for pattern in LOGS for log in path.glob(pattern) if log.is_file()]
        return max(logs, key=lambda log: log.stat().st_mtime, default=None)
    except OSError:
        return None


def read_job_log(path: Path) -> list[str]:
    """The lines of the newest log of a job in the run folder ``path``; empty if there is none."""
    log = newest_log(path)
    try:
        return [] if log is None else read_text(log, errors="replace").splitlines()
    except (DataError, OSError):
        return []
