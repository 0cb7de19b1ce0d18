"""Processor time of ``hpcbench study status`` and ``report`` on studies of 500 runs.

``python benchmarks/studies.py`` writes ``benchmarks/results/studies.json``. The runs are copies of one that is made
first, with other numbers, so that their files are as long as real ones. Each figure is for a whole command in a process
of its own, with its start, its imports, and what it calls. The queue is a fake that answers at once: when ``status`` is
measured, the jobs of half of the runs wait in it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import ROOT, write_results
from _studies import CONVERGENCE, EXAMPLE, INSTANCES, asked, make_cluster, make_convergence, make_scaling

STATUS_S, REPORT_S = 2.0, 10.0
RUNS = 500
KINDS = ("scaling", "throughput", "convergence")


def made_run(folder: Path) -> Path:
    """Make a short run of CosmoFlow; return its folder."""
    for words in (
        ["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", "data"],
        [
            "train",
            "cosmoflow",
            "--preset",
            "smoke",
            "--data.root",
            "data",
            "--run-dir",
            "run",
            "--measure.probe",
            "true",
        ],
    ):
        subprocess.run([sys.executable, "-m", "hpcbench", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "run"


def processor_s(words: list[str], environ: dict[str, str], folder: Path) -> float:
    """Return the user and system seconds of an hpcbench command and its children, on one thread."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "hpcbench", *words], cwd=folder, env=environ, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def made_study(kind: str, folder: Path, source: Path) -> Path:
    """Make a study of ``RUNS`` runs, all of them done; return its folder."""
    if kind == "convergence":
        return make_convergence(CONVERGENCE, folder, source)
    return make_scaling(EXAMPLE if kind == "scaling" else INSTANCES, folder, source)


def measure(rounds: int, folder: Path, source: Path, kinds: Sequence[str] = KINDS) -> dict[str, Any]:
    """Measure every command on every kind of study, ``rounds`` times."""
    environ = make_cluster(folder / "cluster", range(1, RUNS + 1))
    environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    studies = {kind: made_study(kind, folder / kind, source) for kind in kinds}
    planned = [("status", kind, path, STATUS_S) for kind, path in studies.items()]
    planned += [("report", kind, path, REPORT_S) for kind, path in studies.items()]
    if "scaling" in kinds:
        half = make_scaling(EXAMPLE, folder / "half", source, under_way=RUNS // 2)
        planned.insert(0, ("status", "scaling, half of it queued", half, STATUS_S))
    measurements: dict[str, Any] = {}
    for command, name, path, most in planned:
        (folder / "cluster" / "asked").unlink(missing_ok=True)
        times_s = [processor_s(["study", command, str(path)], environ, folder) for _ in range(rounds)]
        questions = {key: count / rounds for key, count in asked(folder / "cluster").items()}
        middle = statistics.median(times_s)
        measurements[f"{command}: {name}"] = {
            "runs": RUNS, "processor_s": times_s, "processor_median_s": middle, "at_most_s": most,
            "met": middle <= most, "scheduler_questions": questions,
        }  # fmt: skip
        print(f"{command} of {name}: {middle:.2f} s (at most {most:g}), questions {questions}", flush=True)
    return measurements


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="times that each command runs")
    parser.add_argument("--run", type=Path, help="folder of a run to copy (default: make one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print(write_results("studies", measure(args.rounds, folder, args.run or made_run(folder))))


if __name__ == "__main__":
    main()
