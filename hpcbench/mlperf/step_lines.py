"""Which lines of an official log describe the run as a whole, and not a step."""

from __future__ import annotations

import re

KEY = re.compile(r'"key"\s*:\s*"([^"\\]*)"')
USUAL = '"key": "'
"""How nearly all logs write it, which is found in a third of the time."""
OF_STEPS = frozenset(
    {"learning_rate", "train_accuracy", "train_loss", "eval_loss", "tracked_stats", "power_reading", "train_error"}
)
"""Keys that logs write every few steps, and from which no column is made."""


def is_of_the_run(line: str) -> bool:
    """Whether a log line is not one of a step. A line whose key cannot be read counts as one of the run."""
    begin = line.find('"key"')
    if line.startswith(USUAL, begin):
        begin += len(USUAL)
        end = line.find('"', begin)
        return end < 0 or line[begin:end] not in OF_STEPS
    key = KEY.search(line)
    return key is None or key.group(1) not in OF_STEPS
