"""Time and memory of reading a dataset index and planning from it, up to 5,000,000 entries.

``python benchmarks/plan.py`` writes ``benchmarks/results/plan.json``. Each figure is of a fresh process that reads an
index from the page cache and makes the plan with most work: shard by exchange over 128 nodes of 8 ranks, all sizes
different. ``pairs`` are npy files, two for each sample, that share a home. Memory is the peak after both over what the
process had before, with all modules loaded. Processor seconds are shown too: busy neighbours disturb them less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import peak_bytes, write_results

from staging.planning.plan import make_plan
from staging.source.index import read_index, write_index
from staging.source.listing import Listing, Names

ENTRIES = (10_000, 100_000, 500_000, 1_000_000, 5_000_000)
NODES, RANKS = 128, 8
BOUND_ENTRIES, BOUND_S, BOUND_BYTES = 500_000, 3.0, 300e6
KINDS = {
    "files": ("univ_ics_2019-03_a{0:09d}.tfrecord",),
    "pairs": ("univ_a{0:09d}_data.npy", "univ_a{0:09d}_label.npy"),
}


def listing(kind: str, entries: int) -> Listing:
    """Files in folders of a thousand samples, of lognormal sizes around 2 MB, with checksums."""
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
    found = read_index(path)
    read = time.perf_counter()
    plan = make_plan(found, NODES, [RANKS] * NODES, "shard", "exchange", seed=7)
    end, busy = time.perf_counter(), time.process_time() - busy
    flows = plan.summary().nodes
    return {
        "entries": len(found),
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
    """The median round by time, each round in a process of its own."""
    path = folder / "dataset.index"
    write_index(path, listing(kind, entries))
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(path)]
    found = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(rounds)
    ]
    path.unlink()
    return {"kind": kind, **sorted(found, key=lambda figures: float(figures["total_s"]))[rounds // 2]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, help="processes for each size")
    parser.add_argument("--largest", type=int, default=ENTRIES[-1], help="leave out what has more entries")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker)))
        return
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
    print(f"written to {write_results('plan', {'bound': bound, 'measured': results})}")
    missed = [
        f"{each['kind']} of {each['entries']} entries"
        for each in results
        if each["entries"] == BOUND_ENTRIES and (each["total_s"] > BOUND_S or each["memory_bytes"] > BOUND_BYTES)
    ]
    raise SystemExit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
