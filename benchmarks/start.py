"""File-system calls of a starting rank: ``import torch`` alone, ``hpcbench train``, and the same from a copy.

    python benchmarks/start.py
    python benchmarks/start.py --environment /scratch/env   # where hpcbench is installed, without -e

The check of the job is part of what a rank does; in a job of packed runs, ``hpcbench study execute`` makes the check,
and is counted without runs. With ``--environment`` that environment is copied to a folder that represents a node's own
storage, as a job with ``--bring-environment`` does, and the remaining calls on shared folders are counted: those of a
rank before it opens the first sample, on the environment and the Python that it is based on, the working folder, the
run folder, and the dataset, each with the folders above it. The node's own system and all other paths are left out.
Needs strace; the machine need not be idle.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _common import ROOT, write_results
from _file_calls import SYSTEM, FileCalls, count, has_strace, read_trace, traced

PLAIN = "import torch"
FEWER = "from hpcbench.frame_lookups import cheap_frame_lookups\nwith cheap_frame_lookups():\n    import torch"
TRAIN = ("train", "cosmoflow", "--preset", "smoke", "--train.max_steps", "1", "--train.target", "null")
BOUND, SHARED_BOUND = 40_000, 500
SHARED = ("environment", "source", "work", "run", "dataset")


def main() -> None:
    """Count, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, help="environment with hpcbench, to be brought to the node")
    arguments = parser.parse_args()
    if not has_strace():
        sys.exit("strace is missing, or may not trace here (apt-get install strace, or ask for ptrace)")
    with tempfile.TemporaryDirectory(prefix="hpcbench-start-") as folder:
        results = measure(Path(folder), arguments.environment)
    print(json.dumps(results, indent=2))
    print(write_results("start", results))


def measure(folder: Path, environment: Path | None) -> dict[str, Any]:
    """Make all counts, as in the result file."""
    python = Path(sys.executable)
    data = folder / "data"
    simulate = ["data", "simulate", "cosmoflow", "--preset", "smoke", "--samples", "32", "--processes", "1"]
    run_python(python, simulate, ["--simulate.validation_samples", "16", "--out", data])
    results: dict[str, Any] = {"bound_start": BOUND, "bound_shared": SHARED_BOUND}
    folders = {"environment": python_folders(python), "source": [ROOT], "work": [folder]}
    for name, code in (("import_torch", PLAIN), ("import_torch_by_hpcbench", FEWER)):
        results[name] = count([python, "-c", code], folders, cwd=folder, environ=environ()).start()
    results["train_one_rank"] = training(python, folder / "one", data, folders).as_dict()
    first, second = two_ranks(python, folder / "two", data, folders)
    results |= {"train_rank_0_of_2": first.as_dict(), "train_rank_1_of_2": second.as_dict()}
    results["execute_packed_job"] = packed_job(python, folder / "study", folders).start()
    if environment is not None:
        results["brought"] = brought(folder, environment, data)
    return results


def brought(folder: Path, environment: Path, data: Path) -> dict[str, Any]:
    """Count the calls of copying the environment and of a rank that runs from the copy."""
    python, local = (environment / "bin" / "python").absolute(), folder / "node"
    shared = {"node": [local], "environment": python_folders(python), "work": [folder]}
    bringing = count(bring_words(python, local), shared, cwd=folder, environ=environ(source=False))
    return {"bringing": bringing.as_dict(), **from_copy(folder, python, local, data)}


def bring_words(python: Path, local: Path) -> list[str | Path]:
    """Return the command that copies the environment of ``python`` to the folder ``local`` of a node."""
    return [python, "-P", "-m", "hpcbench", "environment", local]


def from_copy(folder: Path, python: Path, local: Path, data: Path) -> dict[str, Any]:
    """Count the calls of ranks that run from the copy in ``local`` of the environment of ``python``."""
    shared, clean = {"node": [local], "environment": python_folders(python), "work": [folder]}, environ(source=False)
    copy = local / "environment" / "bin" / "python"
    calls = training(copy, folder / "from-copy", data, shared, clean)
    ranks = two_ranks(copy, folder / "two-from-copy", data, shared, clean)
    return {
        "train_one_rank": calls.as_dict(),
        "shared": calls.start(SHARED),
        "shared_ranks_of_2": [rank.start(SHARED) for rank in ranks],
    }


def python_folders(python: Path) -> list[Path]:
    """The folders of an environment and of the Python that it is based on, unless the latter is the system's own."""
    code = "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines() if not line.startswith(SYSTEM)]


def training(
    python: Path, run: Path, data: Path, folders: dict[str, list[Path]], variables: dict[str, str] | None = None
) -> FileCalls:
    """Count the calls of ``hpcbench train`` in one process, with the check of the job."""
    words = train_words(python, run, data, 1)
    named = {"run": [run], "dataset": [data], **folders}
    return count(words, named, samples=data, cwd=run.parent, environ=variables or environ())


def two_ranks(
    python: Path, run: Path, data: Path, folders: dict[str, list[Path]], variables: dict[str, str] | None = None
) -> tuple[FileCalls, FileCalls]:
    """Count the calls of each of two ranks."""
    named = {"run": [run], "dataset": [data], **folders}
    words = train_words(python, run, data, 2)
    traces = [run.parent / f"{run.name}-trace-{rank}" for rank in range(2)]
    clean = environ() if variables is None else variables
    ranks = [
        subprocess.Popen(traced(words, trace), cwd=run.parent, env=clean | rank_variables(rank, run.parent))
        for rank, trace in enumerate(traces)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit("a rank failed, see above")
    first, second = (read_trace(trace, named, data) for trace in traces)
    return first, second


def packed_job(python: Path, study: Path, folders: dict[str, list[Path]]) -> FileCalls:
    """Count the calls of ``hpcbench study execute`` in a job of packed runs that has none left, with its check."""
    job = study / "jobs" / "0001"
    job.mkdir(parents=True)
    (job / "job.json").write_text(json.dumps({"packed_runs": {"words": {}, "side_by_side": 1}}), encoding="utf-8")
    check = "ranks=1,nodes=1,cores=1,gpus=0"
    words: list[str | Path] = [python, "-P", "-m", "hpcbench", "study", "execute", job, "--check-job", check]
    return count(words, {"study": [study], **folders}, cwd=study, environ=environ())


def train_words(python: Path, run: Path, data: Path, ranks: int) -> list[str | Path]:
    """Return the command of a rank as in job scripts."""
    check = f"ranks={ranks},nodes=1,cores=1,gpus=0"
    return [python, "-P", "-m", "hpcbench", *TRAIN, "--data.root", data, "--run-dir", run, "--check-job", check]


def rank_variables(rank: int, folder: Path) -> dict[str, str]:
    """Return the variables that torchrun would set for one of two ranks."""
    port = 21000 + sum(str(folder).encode()) % 8000
    variables = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in variables.items()}}


def environ(*, source: bool = True) -> dict[str, str]:
    """Return this process's environment, with the checkout as the only entry of PYTHONPATH, or without PYTHONPATH."""
    left = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return left | ({"PYTHONPATH": str(ROOT)} if source else {})


def run_python(python: Path, *words: list[Any]) -> None:
    """Run a command of hpcbench."""
    command = [python, "-m", "hpcbench", *(str(word) for part in words for word in part)]
    subprocess.run(command, check=True, env=environ(), stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
