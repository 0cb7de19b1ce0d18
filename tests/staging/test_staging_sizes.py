"""The tables of docs/staging.md are those that the script makes from plans of the published sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_has_the_tables_of_the_script() -> None:
    command = [sys.executable, "benchmarks/staging_sizes.py"]
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    page = (ROOT / "docs/staging.md").read_text().splitlines()
    rows = [line for line in made.splitlines() if line.startswith("|")]
    assert len(rows) == 2 * (2 + 9)
    assert [row for row in rows if row not in page] == []


def test_the_sums_are_the_published_ones() -> None:
    command = [sys.executable, "benchmarks/staging_sizes.py", "--nodes", "1"]
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "CosmoFlow: 589,824 files of 2.83 MB, 1.67 TB" in made
    assert "DeepCAM: 136,424 files of 63.70 MB, 8.69 TB" in made
