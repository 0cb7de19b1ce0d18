"""What keeping freed memory in the process is worth: the same step with glibc's allocator as it comes and as ours.

``python benchmarks/allocator.py [--rounds 9] [--only cosmoflow|deepcam]`` writes ``benchmarks/results/allocator.json``.
Both sides are the suite's step of ``steps.py``, each in a process of its own, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import asdict
from typing import Any

import torch
from _common import Worker, answers, paired, serve, write_results
from steps import PROBLEMS, our_step

from hpcbench.train.allocator import keep_freed_memory


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Paired wall and processor times, and peak memory, of one network's step."""
    kept, default = Worker(name, "kept"), Worker(name, "default")
    result = paired(("freed memory kept", kept), ("glibc's default", default), rounds=rounds, warmup=2)
    kept.close()
    default.close()
    print(f"{name}: {result}", flush=True)
    busy = [[answer["processor_s"] for answer in worker.answers[2:]] for worker in (kept, default)]
    memory = [worker.answers[-1]["peak_bytes"] for worker in (kept, default)]
    return asdict(result) | {
        "threads": torch.get_num_threads(),
        "processor_time_ratio_median": statistics.median(slow / fast for fast, slow in zip(*busy, strict=True)),
        "peak_bytes": {"kept": memory[0], "default": memory[1]},
        "peak_memory_ratio": memory[0] / memory[1],
    }


def work(name: str, kind: str) -> None:
    """Steps in this process, one for each line of the standard input."""
    out = answers()
    if kind == "kept":
        keep_freed_memory(os.environ)
    problem = PROBLEMS[name]()
    step = our_step(problem)
    del problem.model
    serve(step, out)


def main() -> None:
    """Measure and write ``results/allocator.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=list(PROBLEMS))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(1)
    if options.worker:
        work(*options.worker)
        return
    names = [options.only] if options.only else list(PROBLEMS)
    print(write_results("allocator", {name: measure(name, options.rounds) for name in names}))


if __name__ == "__main__":
    main()
