"""``python -m tests.staging.crashes``: kills stagings at each of their calls, and crashes their nodes; needs strace.

Prints what was tried and what did not hold; exit code 1 where something did not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.staging.crashes.calls import has_strace
from tests.staging.crashes.judge import COLUMNS, Fault
from tests.staging.crashes.kills import kills
from tests.staging.crashes.replays import record, replays
from tests.staging.crashes.scenarios import SCENARIOS, Scenario, place_for

SHOWN = 5
"""Faults of a scenario that are told at most."""


class Tally:
    """Counts points and what did not hold there, by kind, and tells of it."""

    def __init__(self) -> None:
        self.points: Counter[str] = Counter()
        self.faults: Counter[tuple[str, str]] = Counter()

    def add(self, scenario: Scenario, kind: str, where: str, faults: list[Fault]) -> None:
        """Count one point."""
        self.points[kind] += 1
        for column in {fault.column for fault in faults}:
            self.faults[kind, column] += 1
        for fault in faults[:SHOWN]:
            print(f"  {scenario.name}: {where}: {fault.column}: {fault.text}", flush=True)

    def table(self, head: str) -> str:
        """A line for each kind, and one for all."""
        columns = (*COLUMNS, "missed")
        lines = [f"{head:26} {'points':>7}" + "".join(f" {column:>7}" for column in columns)]
        for kind, number in sorted(self.points.items()):
            lines.append(f"{kind:26} {number:7}" + "".join(f" {self.faults[kind, column]:7}" for column in columns))
        sums = [sum(self.faults[kind, column] for kind in self.points) for column in columns]
        return "\n".join([*lines, f"{'all':26} {self.points.total():7}" + "".join(f" {number:7}" for number in sums)])


def kill_all(scenario: Scenario, number: int | None, seed: int, tally: Tally) -> None:
    """Kill a scenario at ``number`` points of each kind, or at all."""
    with place_for(scenario) as place:
        for point, faults in kills(scenario, place, number, random.Random(f"{seed} {scenario.name}")):
            where = f"killed at {point.call.syscall} {point.call.ordinal} of {point.path}"
            tally.add(scenario, point.kind, where, faults)


def crash_all(scenario: Scenario, number: int, seed: int, tally: Tally) -> None:
    """Crash the node of a scenario in ``number`` ways, half of them after a kill and in the command that goes on."""
    dice = random.Random(f"{seed} {scenario.name}")
    with place_for(scenario) as place:
        parts = [(None, number)] if scenario.what != "stage" else [(None, number // 2), *[(dice, number // 8)] * 4]
        for killed_at, share in parts:
            recording = record(scenario, place, killed_at)
            for where, faults in replays(scenario, place, recording, share, dice):
                tally.add(scenario, scenario.name, f"crashed behind {where}", faults)


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.staging.crashes", description=__doc__)
    parser.add_argument("--points", type=int, default=None, help="kills of each kind in each scenario (default: all)")
    parser.add_argument("--states", type=int, default=2000, help="crashes of each scenario (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    parser.add_argument("--only", action="append", default=[], choices=[each.name for each in SCENARIOS])
    args = parser.parse_args()
    if not has_strace():
        print("needs strace that may trace processes and change their calls", file=sys.stderr)
        return 2
    chosen = [scenario for scenario in SCENARIOS if not args.only or scenario.name in args.only]
    ways: list[tuple[str, Callable[[Scenario, Tally], None]]] = []
    if args.points != 0:
        ways.append(("killed at", lambda scenario, tally: kill_all(scenario, args.points, args.seed, tally)))
    if args.states:
        ways.append(("crashed", lambda scenario, tally: crash_all(scenario, args.states, args.seed, tally)))
    failed = 0
    for head, way in ways:
        tally, began = Tally(), time.monotonic()
        for scenario in chosen:
            way(scenario, tally)
        print(f"{tally.table(head)}\nseed {args.seed}, {time.monotonic() - began:.0f} s", flush=True)
        failed += tally.faults.total()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
