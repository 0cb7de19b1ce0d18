"""The benchmarks and campaigns that pages name work: each runs small, in a copy, so that no recorded result changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.documented_commands import ROOT, Command, every

SMALL = {
    "benchmarks/comparison_coverage.py": "--trials 1",
    "benchmarks/first_reads.py": "--smoke --rounds 1 --place .",
    "benchmarks/interconnect.py": "--preset smoke --repeats 1 --steps 1 --only cosmoflow --latency-s 0.002",
    "benchmarks/interval_coverage.py": "--trials 1",
    "benchmarks/learning_curve.py cosmoflow": "--samples 16 --seeds 1 --set train.max_epochs=1",
    "benchmarks/loop.py": "--rounds 1 --only cosmoflow --steps 1",
    "benchmarks/plan.py": "--rounds 1 --largest 10000 --command-rounds 1 --command-entries 2000 --memory .",
    "benchmarks/prediction.py": "",
    "benchmarks/prediction.py --here": "--preset smoke --repeats 1 --seconds 0.05 --memory . --disk . --files 4 "
    "--file-bytes 65536 --probe-s 0.5 --only cosmoflow",
    "benchmarks/projection.py": "",
    "benchmarks/reference_runs.py cosmoflow": "--seeds 1",
    "benchmarks/reference_runs.py deepcam": "--seeds 1",
    "benchmarks/staging.py": "--rounds 1 --disk-rounds 1 --files 40 --large-mib 1 --samples 1 --memory . --disk .",
    "-m tests.staging.crashes": "--points 0 --states 8",
    "-m tests.staging.fuzz": "--cases 110",
    "-m tests.staging.kill_campaign": "--trials 2 --end-bound-s 15",
}
"""What is added to a documented command, or overrides its own options; the longest beginning counts."""
LONG = {"benchmarks/reference_runs.py cosmoflow": pytest.mark.long}
"""The same program with another application."""
OTHERS = ("benchmarks/accelerator.py", "benchmarks/characterisation.py", "benchmarks/staging_sizes.py")
"""Benchmarks of which other tests run the documented commands; see ``NOT_RUN`` in page_commands.py."""
COPIED = ("apps", "benchmarks")
"""Folders that the programs write to: results, tables in READMEs, and reference points."""
RECORDS = ROOT / "benchmarks" / "results"


@cache
def programs() -> dict[str, Command]:
    """The programs of a checkout that pages start with Python, each command once."""
    found = {" ".join(command.words[1:]): command for commands in every().values() for command in commands
             if command.words[0] == "python" and command.words[1:][:1] != ("-c",)}  # fmt: skip
    return {text: command for text, command in found.items()
            if text.startswith(("benchmarks/", "-m tests.")) and not text.startswith(OTHERS)}  # fmt: skip


def small(command: Command) -> list[str]:
    """The words of a command at its small size, without ``python``."""
    text = " ".join(command.words[1:])
    beginning = max((each for each in SMALL if text.startswith(each)), key=len)
    words = ["smoke" if word == "laptop" else word for word in command.words[1:] if word != "--srun"]
    return [*words, *SMALL[beginning].split()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, with links to all that the programs only read."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for name in ("docs", "hpcbench", "pyproject.toml", "staging", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_every_size_is_of_a_documented_command() -> None:
    assert [each for each in SMALL if not any(text.startswith(each) for text in programs())] == []
    assert [text for text in programs() if not text.startswith(tuple(SMALL))] == []


@pytest.mark.slow
@pytest.mark.usefixtures("mpiexec")
@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=LONG.get(text.split(" laptop")[0], ())) for text in programs()]
)
def test_a_program_works_at_a_small_size(text: str, checkout: Path, forking_folder: Path) -> None:
    words = small(programs()[text])
    before = {path: path.stat().st_mtime_ns for path in RECORDS.iterdir()}
    environ = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    # Forked processes have the modules of the real checkout, which is no place for reference points.
    python = sys.executable if text.startswith("benchmarks/reference_runs.py") else str(forking_folder / "python")
    done = subprocess.run([python, *words], cwd=checkout, env=environ, capture_output=True, text=True, check=False)
    said = f"{done.stdout}\n{done.stderr}"
    missed = done.stderr.rstrip().rpartition("\n")[2].startswith("missed: ")  # bounds are of the full size
    assert done.returncode == 0 or (done.returncode == 1 and missed and text.startswith("benchmarks/")), said
    assert "Traceback" not in said
    name = Path(words[0]).stem
    if (RECORDS / f"{name}.json").exists() and "--smoke" not in words:
        record = json.loads((checkout / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        assert record["command"].split()[1:] == words
        assert record["results"]
    if name == "reference_runs":
        points = json.loads((checkout / "apps" / words[1] / "references" / "smoke.json").read_text(encoding="utf-8"))
        assert [len(point["Epochs to converge"]) for point in points.values()] == [1]
    assert {path: path.stat().st_mtime_ns for path in RECORDS.iterdir()} == before
