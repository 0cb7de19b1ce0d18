"""What the folder of one run of a scaling study has measured: its summary, its ranks and its staging report."""

from __future__ import annotations

import io
import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hpcbench.phase_names import STEP_PHASES
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from staging.errors import DataError
from staging.formats.regular import read_text
from staging.units import counted

Record = dict[str, Any]
Figures = tuple[Summary, pd.DataFrame, Record | None]
"""The figures of a run: its summary, its ranks, and its staging report if there is one."""
TEXTS = ("node", "device_note")
"""Columns of ``ranks.csv`` that are read and are not numbers."""
NUMBERS = ("rank", "steps", "samples", "wall_s", "cpu_s", "threads", "energy_j", "gemm_flops", "device_busy_s",
           "device_sampled_s", *(f"{name}_s" for name in STEP_PHASES))  # fmt: skip
"""Columns that are numbers."""
COLUMN_TYPES: dict[Hashable, Any] = {
    **dict.fromkeys(TEXTS, np.dtype(object)),
    **dict.fromkeys(NUMBERS, np.dtype(np.float64)),
}
"""Types of all columns that are read. Pandas spends a tenth of a report on finding out what types names stand for."""


def read_run(path: Path, summary: Summary | None = None) -> Figures:
    """Summary, ranks, and staging report if there is one. Raises ``DataError`` if nothing was measured."""
    folder = RunFolder(path)
    summary = summary or folder.read_summary()
    ranks = read_ranks(folder.ranks)
    if ranks.empty or not (ranks["steps"] > 0).all():
        raise DataError(
            folder.ranks, f"has no step after the warm-up ({counted(summary.steps, 'step')} in all)",
            "give more --steps, or lower measure.warmup_steps",
        )  # fmt: skip
    return summary, ranks, read_staging(folder)


def read_staging(folder: RunFolder) -> Record | None:
    """The staging report of the attempt that landed most bytes: those after it find its files there.

    ``None`` if there is no report. Raises ``DataError`` if one cannot be read.
    """
    reports = [read_json(path) for path in folder.staging_reports()]
    return max(reports, key=lambda report: int(report["bytes_landed"]), default=None)


def read_ranks(path: Path) -> pd.DataFrame:
    """The table of ranks with the columns that a study uses, not-a-number for empty cells. Raises ``DataError``."""
    try:
        return pd.read_csv(io.StringIO(read_text(path)), usecols=lambda name: name in COLUMN_TYPES, dtype=COLUMN_TYPES)
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", "the run may not have finished") from error
    except ValueError as error:
        raise DataError(path, f"is not a table ({error})", "the run may not have finished") from None


def read_json(path: Path) -> Record:
    """The JSON object in ``path``. Raises ``DataError`` if it cannot be read."""
    try:
        record = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise DataError(path, f"cannot be read ({error})", "restore it, or run it again") from None
    if not isinstance(record, dict):
        raise DataError(path, "is not a JSON object", "restore it, or run it again")
    return record
