"""What a slower interconnect costs a step: predicted from the messages, and measured over an emulated network.

``python benchmarks/interconnect.py`` starts itself on two ranks with a core each. Their gradients travel over an
emulated network: a queue in which each message takes a latency and its bytes over a rate. Steps are timed over the
base network, with twice its latency, half its bandwidth, both, and with no delay at all, in turn. What each change
costs is predicted as ``hpcbench predict`` does (``MessageTime``), from the messages, the base network's latency and
rate, and what a step waits for it. It writes ``benchmarks/results/interconnect.json``. The machine must be idle.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from _common import write_results

from hpcbench.prediction.message_time import MessageTime, Sent
from hpcbench.prediction.platforms import Fact, Platform
from hpcbench.prediction.step_time import StepCase, case_of
from hpcbench.prediction.workload import work_of
from hpcbench.results.tables import table

STEPS = Path(__file__).resolve().with_name("_interconnect_steps.py")
BUCKETS = {"cosmoflow": 1 << 16, "deepcam": 1 << 20}
"""Bytes of a message, so small that a step has several."""
RANKS = 2
NONE, BASE = "no delay", "base"
CHANGES = {"latency doubled": (2.0, 1.0), "bandwidth halved": (1.0, 0.5), "both": (2.0, 0.5)}
"""Ratios of latency and of bandwidth to the base network's."""


def networks(latency_s: float, bytes_per_s: float) -> dict[str, tuple[float, float]]:
    """Latency and rate of each emulated network."""
    changed = {name: (latency_s * slower, bytes_per_s * faster) for name, (slower, faster) in CHANGES.items()}
    return {NONE: (0.0, float("1e30")), BASE: (latency_s, bytes_per_s), **changed}


def measure(application: str, options: argparse.Namespace) -> dict[str, Any]:
    """Time the steps of an application over every network: messages, bytes, and seconds by overlap and network."""
    launcher = shutil.which("mpiexec")
    if launcher is None:
        raise SystemExit("mpiexec is not there; install an MPI library (hpcbench-ml[local])")
    words = [application, options.preset, str(options.batch), str(BUCKETS[application]), str(options.repeats),
             str(options.steps), json.dumps(networks(options.latency_s, options.bytes_per_s))]  # fmt: skip
    done = subprocess.run(
        [launcher, "-n", str(RANKS), sys.executable, str(STEPS), *words], check=False, capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{application}: {done.stderr.strip() or done.stdout.strip()}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def case(bytes_per_s: float, batch: int) -> StepCase:
    """A step of two nodes with one rank each over a network of a rate."""
    network = Fact(bytes_per_s, bytes_per_s)
    platform = Platform("emulated", "emulated", 1, "", None, 1e9, 1e9, None, network, network)
    return case_of(work_of("cosmoflow"), platform, RANKS, 1, batch, newer=True)


def predicted(measured: dict[str, Any], times: dict[str, list[float]], options: argparse.Namespace) -> dict[str, float]:
    """Seconds by which each change makes a step longer, from what is known of the base network and of its step."""
    alone, base = median(times[NONE]), median(times[BASE])
    sent = Sent("gradients", "between nodes", measured["messages"], measured["bytes"], options.latency_s,
                options.bytes_per_s, options.bytes_per_s, RANKS, exposed_s=max(base - alone, 0.0))  # fmt: skip
    messages = MessageTime((sent,), options.batch, alone)
    before = float(messages.exposed_s(case(options.bytes_per_s, options.batch), alone))
    return {
        name: float(messages.exposed_s(case(options.bytes_per_s * faster, options.batch), alone, slower)) - before
        for name, (slower, faster) in CHANGES.items()
    }


def rows_of(application: str, measured: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each change, with and without overlap; the measured change is a median over repeats, with its range."""
    rows = []
    for overlap, times in measured["taken_s"].items():
        expected = predicted(measured, times, options)
        for name in CHANGES:
            longer = [after - before for after, before in zip(times[name], times[BASE], strict=True)]
            base, change = median(times[BASE]), median(longer)
            rows.append({
                "application": application, "change": name, "overlap": overlap, "messages": measured["messages"],
                "bytes": measured["bytes"], "no_delay_s": median(times[NONE]), "base_s": base,
                "predicted_s": expected[name], "measured_s": change, "least_s": min(longer), "most_s": max(longer),
                "error": expected[name] / change - 1 if change > 0 else None,
                "step_error": (base + expected[name]) / (base + change) - 1,
            })  # fmt: skip
    return rows


def cells(row: dict[str, Any]) -> list[str]:
    """The cells of a row; milliseconds and percent."""
    error = "-" if row["error"] is None else f"{100 * row['error']:+.1f}"
    span = f"{1e3 * row['least_s']:+.1f} to {1e3 * row['most_s']:+.1f}"
    return [row["application"], row["change"], row["overlap"], str(row["messages"]), f"{row['bytes'] / 1e6:.2f}",
            *(f"{1e3 * row[name]:.1f}" for name in ("no_delay_s", "base_s")),
            *(f"{1e3 * row[name]:+.1f}" for name in ("predicted_s", "measured_s")), span, error,
            f"{100 * row['step_error']:+.1f}"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=list(BUCKETS), default=list(BUCKETS), help="applications")
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--batch", type=int, default=1, help="local batch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="steps of a repeat, of which the median counts")
    parser.add_argument("--latency-s", type=float, default=0.02, help="of a message over the emulated base network")
    parser.add_argument("--bytes-per-s", type=float, default=50e6, help="of the emulated base network")
    options = parser.parse_args()
    rows = [row for name in options.only for row in rows_of(name, measure(name, options), options)]
    headers = ["emulated network", "change", "overlap", "messages", "MB", "no delay ms", "base ms", "predicted ms",
               "measured ms", "range ms", "error %", "of the step %"]  # fmt: skip
    print(table(headers, [cells(row) for row in rows], right=headers[3:], width=160))
    emulated = {"latency_s": options.latency_s, "bytes_per_s": options.bytes_per_s, "ranks": RANKS}
    write_results("interconnect", {"emulated_network": emulated, "rows": rows})


if __name__ == "__main__":
    main()
