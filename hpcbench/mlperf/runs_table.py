"""Runs of many logs as one table, one row each."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.not_verified import NOT_VERIFIED
from staging.atomic import replacing
from staging.errors import InputError
from staging.one_line import one_line

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".json", ".parquet")
PARTS: dict[str, tuple[str, str, str]] = {
    "epochs_s": ("first_epoch_s", "epoch_median_s", "training_s"),
    "evaluations_s": ("first_evaluation_s", "evaluation_median_s", "evaluation_s"),
}
"""Lists of seconds and the table columns made from them: the first, the median of the later ones, the sum."""
VERIFIED = ("verified", "", f"{NOT_VERIFIED}: of all runs but published ones, which are as their round has them")
"""Name, unit and source of the last column."""


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
            row[field.name] = "; ".join(map(printable, value))
        elif isinstance(value, list | dict):
            row[field.name] = json.dumps(value)
        else:
            row[field.name] = printable(value) if isinstance(value, str) else value
    row[VERIFIED[0]] = "" if record.origin == "published" else NOT_VERIFIED
    return row


def printable(text: str) -> str:
    """``text`` without characters that no file of text can hold, such as those of names that are not UTF-8."""
    return text if text.isprintable() else one_line(text)


def runs_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return the table. An unknown cell is missing, in columns of whole numbers, too."""
    import pandas as pd

    rows = [row_of(record) for record in records]
    frame = pd.DataFrame(rows, columns=list(row_of(RunRecord())))
    # From the rows: with a cell missing, pandas takes whole numbers for floating-point ones, which are inexact.
    for name in ("nodes", "accelerators", "global_batch_size", "train_samples", "validation_samples", "seed"):
        frame[name] = pd.array([row[name] for row in rows], dtype="Int64")
    return frame


def writer(path: Path, option: str = "--out") -> Callable[[pd.DataFrame], None]:
    """Return a function that writes a table to ``path``, named by ``option``, in the format of its suffix.

    Raises ``InputError`` for any other suffix, if the file exists or cannot be made, and for Parquet without pyarrow.
    The function raises it where the file cannot be written, and then leaves none behind.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"{option} {path}: the suffix must be one of {', '.join(FORMATS)}")
    if path.exists():
        raise InputError(f"{option} {path} exists; remove it, or give another name")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option} {path}: the folder {path.parent} does not exist")
    from importlib.util import find_spec

    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError(
            f"{option} {path}: Parquet needs pyarrow; pip install pyarrow, or give a name with .csv or .json"
        )

    def write(make: Callable[[Path], None]) -> None:
        try:
            with replacing(path) as part:
                make(part)
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"{option} {path} cannot be written ({why}); give another name") from error

    write(lambda part: part.touch(exist_ok=False))
    path.unlink()
    return lambda frame: write(lambda part: write_frame(frame, part, path.suffix))


def write_frame(frame: pd.DataFrame, path: Path, suffix: str) -> None:
    """Write a table in the format of ``suffix``."""
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".json":
        frame.to_json(path, orient="records", indent=1, double_precision=15)
    else:
        frame.to_parquet(path, index=False)


def described_columns() -> list[tuple[str, str, str]]:
    """Name, unit and source of each column of the table."""
    rows = []
    for field in fields(RunRecord):
        lines, unit = field.metadata["lines"], field.metadata["unit"]
        for name, part in zip(PARTS.get(field.name, ()), ("the first", "median of the others", "sum"), strict=False):
            rows.append((name, unit, f"{part}: {lines}"))
        rows.append((field.name, unit, lines))
    return [*rows, VERIFIED]
