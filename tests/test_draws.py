"""A failed test says how its random draws are made again, also where pytest is quiet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("text", "times"), [("assert False", 1), ("pass", 0)])
def test_the_seed_stands_below_failed_tests(text: str, times: int, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {text}\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        "pytest.ini",
    ]
    environ = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    environ |= {"HPCBENCH_SEED": "2718", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == times
    assert done.stdout.splitlines().count("draws: HPCBENCH_SEED=2718") == times
