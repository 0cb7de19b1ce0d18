"""Stagings are killed at each of their calls, and their nodes crash; then nothing is lost, wrong, or left waiting.

``python -m tests.staging.crashes`` kills each scenario at every call that changes the destination or waits for the disk
(write, rename, fsync, ...), with strace, which needs to be there for that alone. Then it replays what each scenario
did, and drops or tears what was not synced, as a crash of the node may do anywhere. After both, the same command and
--clean must bring what is wanted. Prints how many points of each kind were tried, and at how many something was

  lost     bytes are gone, or are not what the manifest says
  wrong    something is left that should not be, or is not written down
  refused  the next command fails
  hung     a command does not end
  missed   the kill itself did not come where it should

Exit code 1 where that is not zero.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.staging.crashes.calls import lacks_strace
from tests.staging.crashes.judge import COLUMNS, Fault
from tests.staging.crashes.kills import kills
from tests.staging.crashes.replays import record, replays
from tests.staging.crashes.scenarios import SCENARIOS, Scenario
from tests.staging.processes import memory_folder

ALL = (*COLUMNS, "missed")
NAMES = [each.name for each in SCENARIOS]
SHOWN = 5
"""Faults of a scenario that are told at most."""


class Tally:
    """Counts points and what did not hold there, by scenario and kind, and tells of it."""

    def __init__(self) -> None:
        self.points: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[tuple[str, str, str]] = Counter()

    def add(self, scenario: Scenario, kind: str, where: str, faults: list[Fault]) -> None:
        """Count one point."""
        self.points[scenario.name, kind] += 1
        for column in {fault.column for fault in faults}:
            self.faults[scenario.name, kind, column] += 1
        for fault in faults[:SHOWN]:
            print(f"  {scenario.name}: {where}: {fault.column}: {fault.text}", flush=True)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each scenario and kind, for JSON."""
        return [
            {"scenario": name, "kind": kind, "points": number}
            | {column: self.faults[name, kind, column] for column in ALL}
            for (name, kind), number in sorted(self.points.items())
        ]

    def table(self, head: str, by: str) -> str:
        """A line for each ``kind`` or ``scenario``, and one for all."""
        lines = [f"{head:26} {'points':>7}" + "".join(f" {column:>7}" for column in ALL)]
        rows = self.rows()
        for value in [*sorted({row[by] for row in rows}), "all"]:
            sums = [sum(row[key] for row in rows if value in (row[by], "all")) for key in ("points", *ALL)]
            lines.append(f"{value:26}" + "".join(f" {number:7}" for number in sums))
        return "\n".join(lines)


@contextmanager
def place_for(scenario: Scenario) -> Iterator[Path]:
    """A prepared place for a scenario, in memory where it can be."""
    with tempfile.TemporaryDirectory() as otherwise, memory_folder(Path(otherwise)) as folder:
        scenario.prepare(folder / "place")
        yield folder / "place"


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
    parser = argparse.ArgumentParser(
        prog="python -m tests.staging.crashes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--points",
        type=int,
        default=None,
        metavar="N",
        help="kills at so many points of each kind in each scenario (default: at all; 0: none)",
    )
    parser.add_argument(
        "--states",
        type=int,
        default=1000,
        metavar="N",
        help="so many crashes in each scenario are drawn (default: %(default)s; 0: none)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: %(default)s)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=NAMES,
        metavar="SCENARIO",
        help=f"only this one; again for more: {', '.join(NAMES)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was counted there, too")
    args = parser.parse_args()
    if args.points != 0 and (lacking := lacks_strace()):
        print(f"kills need strace: {lacking}; --points 0 for crashes alone", file=sys.stderr)
        return 2
    chosen = [scenario for scenario in SCENARIOS if not args.only or scenario.name in args.only]
    ways: list[tuple[str, str, Callable[[Scenario, Tally], None]]] = []
    if args.points != 0:
        ways.append(("killed", "kind", lambda scenario, tally: kill_all(scenario, args.points, args.seed, tally)))
    if args.states:
        ways.append(("crashed", "scenario", lambda scenario, tally: crash_all(scenario, args.states, args.seed, tally)))
    failed, found = 0, dict[str, Any](seed=args.seed)
    for head, by, way in ways:
        tally, began = Tally(), time.monotonic()
        for scenario in chosen:
            way(scenario, tally)
        seconds = round(time.monotonic() - began)
        print(f"{tally.table(head, by)}\nseed {args.seed}, {seconds} s", flush=True)
        failed += tally.faults.total()
        found[head] = {"seconds": seconds, "rows": tally.rows()}
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
