"""Reads ``:::MLLOG`` lines from the suite's own logs and those of the published rounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from staging.errors import DataError
from staging.formats.regular import read_text

MARK = ":::MLLOG "
DECODE = json.JSONDecoder().decode


class Event(NamedTuple):
    """One line of an official log."""

    time_ms: float
    kind: str
    """INTERVAL_START, INTERVAL_END or POINT_IN_TIME; empty where the line does not say."""
    key: str
    value: Any
    metadata: dict[str, Any]
    line: int
    """Line of the file, from 1."""

    @property
    def epoch(self) -> int | float | None:
        """``epoch_num`` of the metadata; some published logs evaluate within an epoch and give a fraction."""
        number = self.metadata.get("epoch_num")
        return number if isinstance(number, int | float) and not isinstance(number, bool) else None


def read_events(path: str | Path, wanted: Callable[[str], bool] | None = None) -> tuple[list[Event], list[str]]:
    """The events of the log at ``path`` and a message for each line that is not one, of all lines or the wanted ones.

    Raises ``DataError`` where the log cannot be read.
    """
    try:
        text = read_text(Path(path), encoding="latin-1")
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", "give a run folder or a log file") from error
    return parse_events(text.split("\n"), wanted)


def parse_events(lines: Iterable[str], wanted: Callable[[str], bool] | None = None) -> tuple[list[Event], list[str]]:
    """As ``read_events``, from lines. What a line holds before its last ``:::MLLOG``, such as a rank, is skipped."""
    events, problems = [], []
    for number, line in enumerate(lines, 1):
        if MARK not in line or (wanted is not None and not wanted(line)):
            continue
        try:
            events.append(_event(line.rpartition(MARK)[2], number))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            problems.append(f"line {number} is not a log line ({type(error).__name__}: {error})")
    return events, problems


def _event(text: str, number: int) -> Event:
    entry = DECODE(text)
    metadata = entry["metadata"]
    return Event(
        time_ms=float(entry["time_ms"]),
        kind=str(entry.get("event_type", "")),
        key=str(entry["key"]),
        value=entry["value"],
        metadata=metadata if isinstance(metadata, dict) else {},
        line=number,
    )
