"""The losses of a run's steps, read without pandas, which a machine that only trains may lack."""

from __future__ import annotations

import csv
from pathlib import Path

from hpcbench.results.run_folder import RunFolder


def losses(folder: Path) -> list[float]:
    """Of each optimizer step, in order."""
    with RunFolder(folder).steps.open(newline="", encoding="utf-8") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]
