"""The phases of a run as its page shows them: one rank's seconds; of several, the median and the slowest rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from hpcbench import phase_names
from hpcbench.results import style, units
from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.rank_phases import RankPhase, rank_name, run_phases
from hpcbench.results.records import Run

Line = dict[str, str]


def phase_table(run: Run, attempts: Attempts) -> dict[str, Any]:
    """Rows and footer of the table; ``several`` says whether it has a column for the slowest rank."""
    if rows := _rows_of_several(run):
        return _over_ranks(run, rows, attempts)
    table = _of_rank_0(run)
    if run.summary.world_size > 1:
        table["notes"] = ["These are the seconds of rank 0: the run ended before the other ranks told theirs."]
    return table


def median_seconds(run: Run) -> dict[str, float]:
    """Seconds of every phase, the medians over ranks; rank 0's where there are no others, or these reported nothing."""
    rows = _rows_of_several(run)
    if not rows:
        return run.phase_seconds()
    return {phase.name: phase.median_s for phase in run_phases(rows) if phase.name != "finalize"}


def mean_seconds(run: Run) -> dict[str, float]:
    """The same with the means over ranks, which add up to the mean wall time."""
    rows = _rows_of_several(run)
    if not rows:
        return run.phase_seconds()
    return {phase.name: phase.mean_s for phase in run_phases(rows) if phase.name != "finalize"}


def whole_seconds(run: Run) -> float:
    """The seconds that shares of phases refer to: the median wall time of several ranks, else the sum of all phases."""
    rows = _rows_of_several(run)
    return median(float(row["run_wall_s"]) for row in rows) if rows else sum(run.phase_seconds().values())


def _rows_of_several(run: Run) -> Sequence[Mapping[str, Any]]:
    """Rows of the ranks, where there are several and they reported theirs."""
    return run.rank_rows() if run.summary.world_size > 1 else []


def _of_rank_0(run: Run) -> dict[str, Any]:
    seconds, wall_s = run.phase_seconds(), run.summary.wall_s
    total = whole_seconds(run) or math.nan
    lines = [
        _line(run, name, value, value / total)
        for name, value in seconds.items()
        if value > 0 or name == "other"
    ]  # fmt: skip
    covered = units.percent(sum(seconds.values()) / wall_s if wall_s else None)
    foot = {"seconds": f"{wall_s:,.3f}", "share": covered, "slowest": "", "rank": ""}
    notes = []
    if seconds.get("compute") and not seconds.get("optimizer"):
        notes = ["The step was captured as one graph: compute has the optimizer's part of it, whose time is not known."]
    return {"several": False, "lines": lines, "kinds": [], "foot": foot, "notes": notes}


def _over_ranks(run: Run, rows: Sequence[Mapping[str, Any]], attempts: Attempts) -> dict[str, Any]:
    walls = [float(row["run_wall_s"]) for row in rows]
    wall_s, slowest = whole_seconds(run), max(range(len(rows)), key=walls.__getitem__)
    phases = [phase for phase in run_phases(rows) if phase.name != "finalize"]
    lines = {
        phase.name: _line(run, phase.name, phase.median_s, phase.median_s / wall_s) | _slowest(phase)
        for phase in phases
    }  # fmt: skip
    counted = attempts_of_ranks(attempts, len(rows))
    if attempts.attempts:
        lines["finalize"] = _finalize(run, rows[0], attempts.attempts[counted.start : counted.stop])
    kinds = [
        {"name": kind.label, "seconds": f"{kind.median_s:,.3f}", "words": kind.sentence} | _slowest(kind)
        for phase in phases
        for kind in phase.parts
    ]
    foot = {
        "seconds": f"{wall_s:,.3f}", "share": units.percent(1.0), "slowest": f"{walls[slowest]:,.3f}",
        "rank": rank_name(rows[slowest]),
    }  # fmt: skip
    notes = [
        "Every phase has its own median and its own slowest rank, so that a column need not add up to the wall time."
    ]
    return {
        "several": True,
        "lines": [lines[name] for name in phase_names.BY_NAME if name in lines],
        "kinds": kinds,
        "foot": foot,
        "notes": notes + _left_out(run, rows, attempts),
    }


def _finalize(run: Run, row: Mapping[str, Any], attempts: Sequence[Attempt]) -> Line:
    """The line of ``finalize`` in ``attempts``, of rank 0 with its ``row``, which alone continues with it."""
    seconds = sum(attempt.phases_s.get("finalize", 0.0) for attempt in attempts)
    line = _line(run, "finalize", seconds, math.nan)
    return line | {"seconds": "", "share": "", "slowest": line["seconds"], "rank": f"{rank_name(row)}, alone"}


def _left_out(run: Run, rows: Sequence[Mapping[str, Any]], attempts: Attempts) -> list[str]:
    """Notes on what the figures of the ranks leave out of the run."""
    counted, number = attempts_of_ranks(attempts, len(rows)), len(attempts.attempts)
    said = []
    if 0 < counted.start < counted.stop == number:
        part = "the last attempt" if len(counted) == 1 else f"the last {len(counted)} attempts"
        said.append(f"These are of {part}: the ones before had another number of ranks, or left no figures.")
    elif counted.stop < number:
        first, last = counted.start + 1, counted.stop
        part = f"attempt {last}" if first == last else f"attempts {first} to {last}"
        said.append(f"These are of {part} of {number}: the others had another number of ranks, or ended too early.")
    after_s = sum(attempts.attempts[index].wall_s for index in counted) - float(rows[0]["run_wall_s"])
    if attempts.attempts and after_s > 0:
        alone = "" if run.summary.status == "aborted" else ", in which it computed baselines and drew plots,"
        said.append(f"The last {units.duration(after_s)} of rank 0{alone} are not in the wall time of this table.")
    return said


def attempts_of_ranks(attempts: Attempts, ranks: int) -> range:
    """Indices of the attempts that the rows of ``ranks.csv`` add up: the last consecutive ones with ``ranks`` ranks.

    Later ones had another number of ranks, and ended before their figures were gathered. A ``world_size`` of 0 comes
    from an earlier version, which did not record it.
    """
    of_these = [attempt.world_size in (ranks, 0) for attempt in attempts.attempts]
    stop = max((number + 1 for number, is_one in enumerate(of_these) if is_one), default=0)
    start = stop
    while start and of_these[start - 1]:
        start -= 1
    return range(start, stop)


def _line(run: Run, name: str, seconds: float, share: float) -> Line:
    phase = phase_names.BY_NAME.get(name)
    words = "" if phase is None else phase.sentence
    if name == "evaluation" and run.within_epochs:
        words = "the whole validation set, within epochs, too"
    return {
        "name": name.replace("_", " ") if phase is None else phase.label,
        "color": style.PHASE_COLORS.get(name, style.FAINT), "seconds": f"{seconds:,.3f}",
        "share": units.percent(share), "words": words, "slowest": "", "rank": "",
    }  # fmt: skip


def _slowest(phase: RankPhase) -> Line:
    return {"slowest": f"{phase.slowest_s:,.3f}", "rank": phase.slowest_rank or "all alike"}
