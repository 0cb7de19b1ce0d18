"""The record that a simulated dataset has beside its files: what it was made with, and how two datasets differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from staging.bounds import shown
from staging.errors import InputError
from staging.formats.regular import read_text

RECORD = "simulated.json"
GROUPS = ("data", "simulate")


def read_record(root: Path) -> dict[str, Any] | None:
    """What the simulation of the dataset in ``root`` recorded; ``None`` if there is nothing readable."""
    try:
        record = json.loads(read_text(root / RECORD))
    except (OSError, ValueError, InputError):
        return None
    whole = isinstance(record, dict) and isinstance(record.get("application"), str)
    return record if whole and isinstance(record.get("data"), dict) else None


def record_text(root: str) -> str:
    """The record of the dataset in ``root`` on one line, as runs keep it; empty if it has none."""
    record = read_record(Path(root)) if root else None
    return "" if record is None else json.dumps(record, sort_keys=True)


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The first setting that two records have with different values: its name, and both values as shown.

    A setting that only one of them has is from another version of the simulator, and no difference.
    """
    if before.get("application") != now.get("application"):
        return "application", shown(before.get("application")), shown(now.get("application"))
    for group in GROUPS:
        old, new = before.get(group), now.get(group)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            for key in new:
                if key in old and old[key] != new[key]:
                    return f"{group}.{key}", shown(old[key]), shown(new[key])
    return None


def difference_of_texts(before: str, now: str) -> tuple[str, str, str] | None:
    """As ``difference``, for two ``record_text``; none if one of them is empty, or no record."""
    try:
        old, new = json.loads(before), json.loads(now)
    except ValueError:
        return None
    return difference(old, new) if isinstance(old, dict) and isinstance(new, dict) else None
