"""How long it takes to read, score and draw thousands of published logs, at first and again.

``python benchmarks/published_logs.py`` writes ``benchmarks/results/published_logs.json``. As many logs as
MLPerf HPC has published are made from those of the tests, each with its own seed and clock, in the trees of two rounds.
``results`` reads and scores; ``analyze`` reads, and draws every plot of the entries, of which these rounds have about
as many as the published ones. Each has its own cache, so that at first neither finds what the other has read.
Each command is a process of its own, timed from the start of Python. The peer is Python's ``json`` on every line of the
logs in one process, the least that reading takes if no line is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
from _common import write_results
from _multiplied_logs import PUBLISHED, multiply

COMMANDS = ("results", "analyze")
BOUNDS_S = {"at first": 15.0, "again": 2.0}
"""The most seconds of each command on two cores."""
MARK = ":::MLLOG "
PARSE = f"""
import json, sys
from pathlib import Path
lines = 0
for path in Path(sys.argv[1]).rglob("result_*.txt"):
    for line in path.read_text(encoding="latin-1").split("\\n"):
        if {MARK!r} in line:
            json.loads(line.rpartition({MARK!r})[2])
            lines += 1
print(lines)
"""


@dataclass(frozen=True)
class Taken:
    """A command's clock and processor seconds, and the last line that it printed."""

    clock_s: float
    processor_s: float
    said: str


def timed(words: list[str], cache: Path) -> Taken:
    """Run a command with a cache folder of its own; it must succeed. Matplotlib's list of fonts is the user's."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "MPLCONFIGDIR": matplotlib.get_cachedir()}
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    clock_s, after = time.perf_counter() - start, os.times()
    processor_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Taken(clock_s, processor_s, done.stdout.strip().rpartition("\n")[2])


def measure(rounds: Path, folder: Path, times: int) -> dict[str, list[Taken]]:
    """Run each command on ``rounds`` so many times, at first and again, and the peer as often."""
    taken: dict[str, list[Taken]] = {f"{command} {when}": [] for command in COMMANDS for when in BOUNDS_S}
    taken["json"] = []
    for number in range(times):
        for command in COMMANDS:
            cache = folder / f"cache-{command}-{number}"
            for when in BOUNDS_S:
                out = ["--out", str(cache / when)] if command == "analyze" else []
                words = [sys.executable, "-m", "hpcbench", command, str(rounds), *out]
                taken[f"{command} {when}"].append(timed(words, cache))
        taken["json"].append(timed([sys.executable, "-c", PARSE, str(rounds)], folder))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--logs", type=int, default=PUBLISHED)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = Path(folder) / "rounds"
        size = multiply(rounds, options.logs)
        time.sleep(2.5)  # logs that have just changed are not cached
        taken = measure(rounds, Path(folder), options.rounds)
    lines = int(taken["json"][0].said)
    results: dict[str, object] = {"logs": options.logs, "bytes": size, "lines": lines}
    missed = []
    for name, timings in taken.items():
        middle = sorted(timings, key=lambda one: one.clock_s)[len(timings) // 2]
        bound = BOUNDS_S.get(name.partition(" ")[2])
        results[name] = {"median_clock_s": middle.clock_s, "bound_s": bound, "runs": [asdict(one) for one in timings]}
        print(f"{name}: {middle.clock_s:.2f} s, {middle.processor_s:.2f} s of processors", flush=True)
        missed += [name] if bound is not None and middle.clock_s > bound else []
    pairs = zip(taken["results at first"], taken["json"], strict=True)
    ratios = sorted(first.processor_s / parse.processor_s for first, parse in pairs)
    results["processor_s_over_json"] = {"median": ratios[len(ratios) // 2], "from": ratios[0], "to": ratios[-1]}
    print(json.dumps(results["processor_s_over_json"]))
    print(f"written to {write_results('published_logs', results)}")
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
