"""Runs of many logs as one table, a row for each."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.mlperf.find_logs import LogPlace
from hpcbench.mlperf.own_runs import read_own_run
from hpcbench.mlperf.read_log import read_log
from hpcbench.mlperf.run_record import FEWEST_ALIKE, RunRecord
from staging.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".json", ".parquet")
PARTS: dict[str, tuple[str, str, str]] = {
    "epochs_s": ("first_epoch_s", "epoch_median_s", "training_s"),
    "evaluations_s": ("first_evaluation_s", "evaluation_median_s", "evaluation_s"),
}
"""Lists of seconds and the columns that a table has of them: the first, the median of the later ones, the sum."""


def read_runs(places: Sequence[LogPlace]) -> list[RunRecord]:
    """A record of each; what cannot be read among others says so itself. Raises ``InputError`` for one alone."""
    records = [read_run(place, alone=len(places) == 1) for place in places]
    note_alike(records)
    return records


def read_run(place: LogPlace, alone: bool) -> RunRecord:
    """The record of a run; where it cannot be read and is not alone, one with the reason."""
    try:
        return read_own_run(place) if place.origin == "own" else read_log(place)
    except InputError as error:
        if alone:
            raise
        return RunRecord(
            path=str(place.path), origin=place.origin, round=place.round, organization=place.organization,
            system=place.system, application=place.application, mode=place.mode, pruned=place.pruned,
            reason=f"cannot be read: {error}",
        )  # fmt: skip


def note_alike(records: Sequence[RunRecord]) -> None:
    """A note to runs of a folder that trained alike to the last digit."""
    first: dict[tuple[object, ...], RunRecord] = {}
    for record in records:
        if len(record.qualities) < FEWEST_ALIKE:
            continue
        key = (str(Path(record.path).parent), *record.qualities)
        other = first.setdefault(key, record)
        if other is not record:
            record.notes.append(f"evaluated exactly as {Path(other.path).name}: one trajectory")


def row_of(record: RunRecord) -> dict[str, Any]:
    """The cells of a record: lists of seconds as three columns and JSON, other collections as text."""
    row: dict[str, Any] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if each.name in PARTS:
            first, middle, total = PARTS[each.name]
            row[first] = value[0] if value else None
            row[middle] = statistics.median(value[1:] or value) if value else None
            row[total] = sum(value) if value else None
        if each.name == "notes":
            row[each.name] = "; ".join(value)
        elif isinstance(value, list | dict):
            row[each.name] = json.dumps(value)
        else:
            row[each.name] = value
    return row


def runs_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """The table. A cell that cannot be known is missing, in whole numbers too."""
    import pandas as pd

    frame = pd.DataFrame([row_of(record) for record in records], columns=list(row_of(RunRecord())))
    whole = ("nodes", "accelerators", "global_batch_size", "train_samples", "validation_samples", "seed")
    return frame.astype(dict.fromkeys(whole, "Int64"))


def writer(path: Path) -> Callable[[pd.DataFrame], None]:
    """What writes a table to ``path``, by its suffix. Raises ``InputError`` for another, or a file that is there."""
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
    for each in fields(RunRecord):
        lines, unit = each.metadata["lines"], each.metadata["unit"]
        for name, part in zip(PARTS.get(each.name, ()), ("the first", "median of the others", "sum"), strict=False):
            rows.append((name, unit, f"{part}: {lines}"))
        rows.append((each.name, unit, lines))
    return rows
