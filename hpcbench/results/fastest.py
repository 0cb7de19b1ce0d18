"""Which of several runs is the fastest and by how much, in one sentence: the headline of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpcbench.results import units
from hpcbench.results.records import Run

EQUAL = 0.02
"""Times that differ by no more are called equal. This is a choice: runs on one machine may well differ by more."""


def finding(runs: Mapping[str, Run]) -> str:
    """The finding of one application's runs by name; empty for a single run.

    Times to solution are compared where at least two runs reached one common target, else samples per second.
    """
    if len(runs) < 2:
        return ""
    application = next(iter(runs.values())).summary.application
    start = "" if all(name.startswith(application) for name in runs) else f"{application}: "
    reached = {name: run for name, run in runs.items() if run.reached}
    if len(reached) > 1 and len({run.summary.target for run in reached.values()}) == 1:
        return f"{start}{_compared(reached, 'reaches the target', 'reach the target', _time)}"
    trained = {name: run for name, run in runs.items() if run.summary.samples_per_s}
    if len(trained) > 1:
        return f"{start}{_compared(trained, 'trains', 'train', _time_of_a_sample)}"
    return ""


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


def _compared(runs: Mapping[str, Run], does: str, do: str, seconds: Callable[[Run], float]) -> str:
    """The fastest run against the slowest, or against the only other one."""
    fastest = min(runs, key=lambda name: seconds(runs[name]))
    slowest = max(runs, key=lambda name: seconds(runs[name]))
    low, high = seconds(runs[fastest]), seconds(runs[slowest])
    fast, slow = _named(runs, fastest), _named(runs, slowest)
    if high <= low * (1 + EQUAL):
        return f"{'both' if len(runs) == 2 else 'all'} runs {do} equally fast, to within {units.percent(EQUAL)}"
    words = f"{fast} {does} {units.significant(high / low)} times as fast as {slow}"
    return words if len(runs) == 2 else f"{words}, the slowest of {len(runs)} runs"


def _named(runs: Mapping[str, Run], name: str) -> str:
    """The run's name, and its machine where that distinguishes it from the others."""
    machines = {machine(run) for run in runs.values()}
    return name if len(machines) == 1 else f"{name} ({machine(runs[name])})"
