"""Time and memory of reading a dataset index and planning from it, up to 5,000,000 entries, and of the whole command.

``python benchmarks/plan.py`` writes ``benchmarks/results/plan.json``. Each figure is from a fresh process that reads an
index from the page cache and makes the plan with the most work: shard by exchange over 128 nodes of 8 ranks, all sizes
different. ``pairs`` are npy files, two per sample, that share a home. Memory is the peak after both steps less what the
process had before, with all modules loaded. Processor seconds are shown, too: busy neighbours disturb them less.

``whole_command`` is ``mpiexec -n 2 python -m staging --plan-only`` on 500,000 files in folders of a thousand on a
tmpfs, from start to end, with an index and by a walk, alternating with ``find``, which prints size, time and name of
each file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from _common import compared, peak_bytes, write_results

from staging.planning.plan import make_plan
from staging.ranks.world import Alone
from staging.source.index import read_index, write_index
from staging.source.listing import Listing, Names
from staging.source.walk import list_tree

ENTRIES = (10_000, 100_000, 500_000, 1_000_000, 5_000_000)
NODES, RANKS = 128, 8
BOUND_ENTRIES, BOUND_S, BOUND_BYTES = 500_000, 3.0, 300e6
COMMAND_BOUNDS_S = {"index": 1.0, "walk": 2.5}
"""Bounds on the median of the whole command."""
KINDS = {
    "files": ("univ_ics_2019-03_a{0:09d}.tfrecord",),
    "pairs": ("univ_a{0:09d}_data.npy", "univ_a{0:09d}_label.npy"),
}


def listing(kind: str, entries: int) -> Listing:
    """Return files in folders of a thousand samples, with lognormal sizes around 2 MB and checksums."""
    random = np.random.default_rng(2019)
    suffixes = KINDS[kind]
    samples = range(entries // len(suffixes))
    names = Names.of(f"train/{sample // 1000:06d}/{name.format(sample)}" for sample in samples for name in suffixes)
    sizes = random.lognormal(np.log(2e6), 0.5, entries).astype(np.int64)
    times = random.integers(1_600_000_000_000_000_000, 1_700_000_000_000_000_000, entries)
    return Listing(names, sizes, times, random.integers(0, 1 << 32, entries))


def work(path: Path) -> dict[str, Any]:
    """Read and plan once, in this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    before = int(status["VmRSS"].split()[0]) * 1024
    start, busy = time.perf_counter(), time.process_time()
    dataset_listing = read_index(path)
    read = time.perf_counter()
    plan = make_plan(dataset_listing, NODES, [RANKS] * NODES, "shard", "exchange", seed=7)
    end, busy = time.perf_counter(), time.process_time() - busy
    flows = plan.summary().nodes
    return {
        "entries": len(dataset_listing),
        "index_bytes": path.stat().st_size,
        "read_s": read - start,
        "plan_s": end - read,
        "total_s": end - start,
        "processor_s": busy,
        "memory_bytes": peak_bytes() - before,
        "bytes_landing_min": min(flow.bytes_landing for flow in flows),
        "bytes_landing_max": max(flow.bytes_landing for flow in flows),
    }


def measure(folder: Path, kind: str, entries: int, rounds: int) -> dict[str, Any]:
    """Return the median round by time; each round runs in a process of its own."""
    path = folder / "dataset.index"
    write_index(path, listing(kind, entries))
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(path)]
    figures_by_round = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(rounds)
    ]
    path.unlink()
    return {"kind": kind, **sorted(figures_by_round, key=lambda figures: float(figures["total_s"]))[rounds // 2]}


def whole_command(memory: Path, rounds: int, entries: int) -> dict[str, Any]:
    """Measure seconds of the whole command with two ranks, and of ``find``, in turn after one warm-up each."""
    source, index = memory / "source", memory / "dataset.index"
    for number in range(entries // 1000):
        folder = source / f"train/{number:06d}"
        folder.mkdir(parents=True)
        for sample in range(1000):
            (folder / KINDS["files"][0].format(1000 * number + sample)).touch()
    write_index(index, list_tree(source, Alone()).listing)
    staging = ["mpiexec", "-n", "2", sys.executable, "-m", "staging", str(source), str(memory / "out"), "--plan-only"]
    ways = {
        "index": [*staging, "--index", str(index)],
        "walk": staging,
        "find": ["find", str(source), "-type", "f", "-printf", r"%s %T@ %p\n"],
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(-1, rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.perf_counter()
            subprocess.run(ways[name], check=True, stdout=subprocess.DEVNULL)
            if turn >= 0:
                taken[name].append(time.perf_counter() - start)
    return {
        "entries": entries,
        "ranks": 2,
        "rounds": rounds,
        "bounds_s": COMMAND_BOUNDS_S,
        "medians_s": {name: statistics.median(seconds) for name, seconds in taken.items()},
        "walk_against_find": asdict(compared("--plan-only by a walk", "find -printf", taken["walk"], taken["find"])),
        "seconds": taken,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, help="processes for each size")
    parser.add_argument("--largest", type=int, default=ENTRIES[-1], help="leave out sizes with more entries")
    parser.add_argument("--command-rounds", type=int, default=21, help="turns of the whole command; 0: leave it out")
    parser.add_argument("--command-entries", type=int, default=BOUND_ENTRIES, help="files of the whole command")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a tmpfs for 500,000 empty files")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker)))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is in memory is removed
    command: dict[str, Any] = {"skipped": "mpiexec is not on the path, or --command-rounds 0"}
    if options.command_rounds and shutil.which("mpiexec"):
        with tempfile.TemporaryDirectory(dir=options.memory) as memory:
            command = whole_command(Path(memory), options.command_rounds, options.command_entries)
        print(f"whole command: {command['medians_s']}", flush=True)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for entries in (number for number in ENTRIES if number <= options.largest):
                results.append(measure(Path(folder), kind, entries, options.rounds))
                shown = results[-1]
                print(
                    f"{kind} {entries:>9,}: read {shown['read_s']:.2f} s, plan {shown['plan_s']:.2f} s, "
                    f"processor {shown['processor_s']:.2f} s, "
                    f"{shown['memory_bytes'] / 1e6:.0f} MB",
                    flush=True,
                )
    bound = {"entries": BOUND_ENTRIES, "total_s": BOUND_S, "memory_bytes": BOUND_BYTES}
    record = {"bound": bound, "measured": results, "whole_command": command}
    print(f"written to {write_results('plan', record)}")
    missed = [
        f"the whole command by {name}: {command['medians_s'][name]:.2f} s where {bound_s} s are asked"
        for name, bound_s in COMMAND_BOUNDS_S.items()
        if "medians_s" in command and command["medians_s"][name] > bound_s
    ]
    missed += [
        f"{figures['kind']} of {figures['entries']} entries"
        for figures in results
        if figures["entries"] == BOUND_ENTRIES
        and (figures["total_s"] > BOUND_S or figures["memory_bytes"] > BOUND_BYTES)
    ]
    raise SystemExit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
