"""The lines of an official log that say something of the run as a whole, without those of each step."""

from __future__ import annotations

import re
from pathlib import Path

from hpcbench.results.mllog_reader import MARK, Event, parse_events
from staging.errors import DataError
from staging.formats.regular import read_text

KEY = re.compile(r'"key"\s*:\s*"([^"\\]*)"')
OF_STEPS = frozenset(
    {"learning_rate", "train_accuracy", "train_loss", "eval_loss", "tracked_stats", "power_reading", "train_error"}
)
"""Keys of which logs have a line every few steps, and from which no column is made."""


def read_run_events(path: str | Path) -> tuple[list[Event], list[str]]:
    """The events of the log at ``path`` but those of steps, and a message for each line that cannot be read.

    Raises ``DataError`` where the file cannot be read.
    """
    try:
        text = read_text(Path(path), encoding="latin-1")
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", "give a run folder or a log file") from error
    return parse_events(line if wanted(line) else "" for line in text.split("\n"))


def wanted(line: str) -> bool:
    """Whether a line is one of a log, and not of a step. Lines whose key cannot be told are wanted."""
    if MARK not in line:
        return False
    key = KEY.search(line)
    return key is None or key.group(1) not in OF_STEPS
