"""Runs of many logs as one table, one row each."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.mlperf.run_record import RunRecord
from staging.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".json", ".parquet")
PARTS: dict[str, tuple[str, str, str]] = {
    "epochs_s": ("first_epoch_s", "epoch_median_s", "training_s"),
    "evaluations_s": ("first_evaluation_s", "evaluation_median_s", "evaluation_s"),
}
"""Lists of seconds and the table columns made from them: the first, the median of the later ones, the sum."""


def row_of(record: RunRecord) -> dict[str, Any]:
    """Return the cells of a record: lists of seconds as three columns and JSON, other collections as text."""
    row: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name in PARTS:
            first, middle, total = PARTS[field.name]
            row[first] = value[0] if value else None
            row[middle] = statistics.median(value[1:] or value) if value else None
            row[total] = sum(value) if value else None
        if field.name == "notes":
            row[field.name] = "; ".join(value)
        elif isinstance(value, list | dict):
            row[field.name] = json.dumps(value)
        else:
            row[field.name] = value
    return row


def runs_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return the table. An unknown cell is missing, in columns of whole numbers, too."""
    import pandas as pd

    rows = [row_of(record) for record in records]
    frame = pd.DataFrame(rows, columns=list(row_of(RunRecord())))
    # From the rows: with a cell missing, pandas takes whole numbers for floating-point ones, which are inexact.
    for name in ("nodes", "accelerators", "global_batch_size", "train_samples", "validation_samples", "seed"):
        frame[name] = pd.array([row[name] for row in rows], dtype="Int64")
    return frame


def writer(path: Path) -> Callable[[pd.DataFrame], None]:
    """Return a function that writes a table to ``path`` in the format of its suffix.

    Raises ``InputError`` for any other suffix, if the file exists or its folder does not, and for Parquet without
    pyarrow.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"--out {path}: the suffix must be one of {', '.join(FORMATS)}")
    if path.exists():
        raise InputError(f"--out {path} exists; remove it, or give another name")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--out {path}: the folder {path.parent} does not exist")
    if path.suffix == ".csv":
        return lambda frame: frame.to_csv(path, index=False)
    if path.suffix == ".json":
        return lambda frame: frame.to_json(path, orient="records", indent=1, double_precision=15)
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise InputError(f"--out {path}: Parquet needs pyarrow; pip install pyarrow, or give a name with .csv or .json")
    return lambda frame: frame.to_parquet(path, index=False)


def described_columns() -> list[tuple[str, str, str]]:
    """Name, unit and source of each column of the table."""
    rows = []
    for field in fields(RunRecord):
        lines, unit = field.metadata["lines"], field.metadata["unit"]
        for name, part in zip(PARTS.get(field.name, ()), ("the first", "median of the others", "sum"), strict=False):
            rows.append((name, unit, f"{part}: {lines}"))
        rows.append((field.name, unit, lines))
    return rows
