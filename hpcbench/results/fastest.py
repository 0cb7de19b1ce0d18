"""Which of several runs is the fastest and by how much, in one sentence: the headline of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hpcbench.results import comparable, units
from hpcbench.results.records import Run

EQUAL = 0.02
"""Times that differ by no more are called equal. This is a choice: runs on one machine may well differ by more."""
IN_THESE = ", in these runs"
"""After a claim that single runs do not support in general."""


def finding(runs: Mapping[str, Run]) -> str:
    """The finding of one application's runs by name; empty for a single run.

    Times to solution are compared where at least two runs reached one common target, else samples per second. Runs that
    differ in their problem are not compared, and times of runs that differ in nothing but the seed are a range.
    """
    if len(runs) < 2:
        return ""
    every = list(runs.values())
    application = every[0].summary.application
    start = "" if all(name.startswith(application) for name in runs) else f"{application}: "
    reached = {name: run for name, run in runs.items() if run.reached}
    trained = {name: run for name, run in runs.items() if run.summary.samples_per_s}
    has_times = len(reached) > 1 and comparable.share_target(list(reached.values()))
    compared = reached if has_times else trained
    if len(compared) < 2:
        return ""
    if differing := comparable.differences(list(compared.values())):
        found = f"the runs are not compared, as they differ in {differing}{comparable.reaching(every)}"
        return as_headline(start, found)
    if has_times:
        if repeated := _repeated(every):
            return as_headline(start, f"{repeated}{comparable.reaching(every, 'it')}")
        found = _compared(reached, len(runs), "reaches the target", "reach the target", _time, IN_THESE)
        return f"{start}{found}{comparable.reaching(every, 'it')}"
    found = _compared(trained, len(runs), "trains", "train", _time_of_a_sample)
    known = "" if len(trained) == len(runs) else f"; {len(trained)} of {len(runs)} runs have a rate"
    return f"{start}{found}{known}{comparable.reaching(every)}"


def as_headline(start: str, words: str) -> str:
    """``words``, which begin with no name of a run, after ``start``; with a capital where there is none."""
    return f"{start}{words}" if start else f"{words[0].upper()}{words[1:]}"


def machine(run: Run) -> str:
    """What a run ran on: ``2 nodes, 8 x NVIDIA H100``, or ``2 nodes, AMD EPYC`` where ranks share a processor."""
    s = run.summary
    nodes = "" if s.nodes == 1 else f"{units.counted(s.nodes, 'node')}, "
    number = "" if s.device_type in ("", "cpu") or s.world_size == 1 else f"{s.world_size:,} x "
    return f"{nodes}{number}{s.device}"


def _time(run: Run) -> float:
    return run.summary.time_to_solution_s


def _time_of_a_sample(run: Run) -> float:
    assert run.summary.samples_per_s
    return 1 / run.summary.samples_per_s


def _repeated(runs: Sequence[Run]) -> str:
    """The range of the times to the target where all runs have the same settings; else empty."""
    if not (same := comparable.repeats(runs)):
        return ""
    times = [_time(run) for run in runs if run.reached]
    ends = dict.fromkeys(units.duration(time) for time in (min(times), max(times)))
    return f"{same}: {' to '.join(ends)} to the target"


def _compared(
    runs: Mapping[str, Run], total: int, does: str, do: str, seconds: Callable[[Run], float], where: str = ""
) -> str:
    """The fastest run against the slowest, or against the only other one; of ``total`` runs, these have ``seconds``."""
    fastest = min(runs, key=lambda name: seconds(runs[name]))
    slowest = max(runs, key=lambda name: seconds(runs[name]))
    low, high = seconds(runs[fastest]), seconds(runs[slowest])
    fast, slow = _named(runs, fastest), _named(runs, slowest)
    if high <= low * (1 + EQUAL):
        who = str(len(runs)) if len(runs) < total else "both" if total == 2 else "all"
        return f"{who} runs {do} equally fast, to within {units.percent(EQUAL)}{where}"
    words = f"{fast} {does} {units.significant(high / low)} times as fast as {slow}"
    return (
        f"{words}{where}" if len(runs) == 2 else f"{words}, the slowest of {'these ' if where else ''}{len(runs)} runs"
    )


def _named(runs: Mapping[str, Run], name: str) -> str:
    """The run's name, and its machine where that distinguishes it from the others."""
    machines = {machine(run) for run in runs.values()}
    return name if len(machines) == 1 else f"{name} ({machine(runs[name])})"
