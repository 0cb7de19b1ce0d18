"""Node-hours that a run has used, by attempts of its job, from what its folder and its scheduler know.

An attempt lasts from the first lines of its script to the script's end. A killed attempt recorded no end: it is taken
from the scheduler's accounting, if there is one, else from the last time that its training recorded, as a lower bound.
What cannot be found is unknown, not zero.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hpcbench.batch.holds import Hold, end_time, read_holds
from hpcbench.batch.scheduler import UnreachableError
from hpcbench.batch.schedulers import find_scheduler
from hpcbench.batch.submission import ask
from hpcbench.results import units
from hpcbench.results.attempts import Attempts
from hpcbench.results.tables import table, wrapped
from staging.errors import DataError

UNKNOWN = "unknown"
NEAR_S = 120.0
"""Most seconds between a job's start in the accounting and the first lines of its script, clock offsets included."""


@dataclass(frozen=True)
class Used:
    """Node-hours of one attempt; ``seconds`` is ``None`` if unknown, and a lower bound with ``at_least``."""

    number: int
    job_id: str
    nodes: int
    began: float
    seconds: float | None
    at_least: bool = False

    @property
    def node_hours(self) -> float | None:
        """Node-hours of the attempt; ``None`` if unknown."""
        return None if self.seconds is None else self.nodes * self.seconds / 3600


@dataclass(frozen=True)
class NodeHours:
    """Node-hours of a run, by attempts of its job; no attempts if no job has begun."""

    attempts: tuple[Used, ...] = ()

    @property
    def total(self) -> float | None:
        """Sum over all attempts whose node-hours are known; ``None`` if none are."""
        known = [attempt.node_hours for attempt in self.attempts if attempt.node_hours is not None]
        return sum(known) if known else None

    @property
    def at_least(self) -> bool:
        """Whether the total is a lower bound."""
        return any(attempt.at_least or attempt.seconds is None for attempt in self.attempts)

    @property
    def words(self) -> str:
        """The total as a cell of a table."""
        return "-" if not self.attempts else words(self.total, self.at_least)


def words(hours: float | None, at_least: bool) -> str:
    """Node-hours with their uncertainty: 3.2, at least 3.2, unknown."""
    return UNKNOWN if hours is None else f"{'at least ' if at_least else ''}{units.significant(hours)}"


def used(folder: Path, *, running: bool = False, ask_scheduler: bool = True) -> NodeHours:
    """Node-hours of the run in ``folder``; with ``running`` the newest attempt lasts until this moment.

    ``ask_scheduler``: whether its accounting may be asked for attempts that were killed. Raises ``DataError`` for
    damaged files of the folder.
    """
    holds = [hold for hold in read_holds(folder) if hold.nodes]
    attempts = []
    for place, hold in enumerate(holds):
        newest = place == len(holds) - 1
        following = float("inf") if newest else holds[place + 1].began
        end = end_time(folder, hold)
        if end is None and newest and running:
            end = time.time()
        seconds, at_least = (None, False) if end is None else (max(0.0, end - hold.began), False)
        if seconds is None and ask_scheduler:
            seconds = accounted_s(hold, last=all(hold.job_id != later.job_id for later in holds[place + 1 :]))
        if seconds is None:
            seconds, at_least = trained_s(folder, hold, following), True
        attempts.append(Used(hold.attempt, hold.job_id, hold.nodes, hold.began, seconds, at_least))
    return NodeHours(tuple(attempts))


def trained_s(folder: Path, hold: Hold, following: float) -> float | None:
    """Least seconds that an attempt worked, from the last time that its training recorded; ``None`` without one."""
    ends = [attempt.ended for attempt in Attempts.read(folder).attempts if hold.began <= attempt.started < following]
    return max(ends) - hold.began if ends else None


def accounted_s(hold: Hold, *, last: bool) -> float | None:
    """Seconds that an attempt lasted by the scheduler's accounting; ``None`` if it does not say.

    Where the accounting does not give the start, it means that of the ``last`` attempt with this job id.
    """
    try:
        starts = find_scheduler(hold.scheduler).elapsed_s(hold.job_id, ask)
    except UnreachableError:
        return None
    near = [seconds for began, seconds in starts if (last if began is None else abs(began - hold.began) <= NEAR_S)]
    return near[-1] if near else None


def total_words(folders: Iterable[Path], running: Iterable[Path] = (), what: str = "run") -> str:
    """Node-hours used by several runs, or jobs, without asking schedulers; empty if no job has begun.

    What a damaged folder has used is unknown.
    """
    at_work = set(running)
    begun, damaged = [], 0
    for folder in folders:
        try:
            hours = used(folder, running=folder in at_work, ask_scheduler=False)
        except DataError:
            damaged += 1
        else:
            begun += [hours] if hours.attempts else []
    if not begun and not damaged:
        return ""
    known = [run.total for run in begun if run.total is not None]
    unknown = len(begun) - len(known) + damaged
    told = f" ({units.counted(unknown, what)} unknown)" if unknown else ""
    attempts = sum(len(run.attempts) for run in begun)
    total = words(sum(known) if known else None, damaged > 0 or any(run.at_least for run in begun))
    used_in = f"in {units.counted(attempts, 'attempt')} of {units.counted(len(begun) + damaged, what)}"
    line = f"node-hours used: {total}{told}, {used_in}{by_attempt(begun)}"
    return wrapped(line)


def by_attempt(runs: Iterable[NodeHours]) -> str:
    """What first attempts used, second ones, and so on, to follow a total; empty if there are only first ones."""
    numbered: dict[int, list[Used]] = {}
    for attempt in (attempt for run in runs for attempt in run.attempts):
        numbered.setdefault(attempt.number, []).append(attempt)
    if len(numbered) < 2:
        return ""
    parts = []
    for number, attempts in sorted(numbered.items()):
        known = [attempt.node_hours for attempt in attempts if attempt.node_hours is not None]
        at_least = len(known) < len(attempts) or any(attempt.at_least for attempt in attempts)
        parts.append(f"attempt {number} {words(sum(known) if known else None, bool(known) and at_least)}")
    return f" ({', '.join(parts)})"


def attempts_table(hours: NodeHours) -> str:
    """The attempts of a run as a table."""
    rows = [
        [
            str(attempt.number), attempt.job_id,
            datetime.fromtimestamp(attempt.began, UTC).strftime("%Y-%m-%d %H:%M:%S"), str(attempt.nodes),
            UNKNOWN if attempt.seconds is None else units.duration(attempt.seconds),
            words(attempt.node_hours, attempt.at_least),
        ]
        for attempt in hours.attempts
    ]  # fmt: skip
    return table(("attempt", "job", "began (UTC)", "nodes", "time", "node-hours"), rows)
