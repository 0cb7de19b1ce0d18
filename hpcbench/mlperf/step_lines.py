"""Which lines of an official log describe the run as a whole, and not a step."""

from __future__ import annotations

import re

KEY = re.compile(r'"key"\s*:\s*"([^"\\]*)"')
OF_STEPS = frozenset(
    {"learning_rate", "train_accuracy", "train_loss", "eval_loss", "tracked_stats", "power_reading", "train_error"}
)
"""Keys that logs write every few steps, and from which no column is made."""


def is_of_the_run(line: str) -> bool:
    """Whether a log line is not one of a step. A line whose key cannot be read, or has several, is one of the run."""
    key = KEY.search(line)
    return key is None or key.group(1) not in OF_STEPS or line.count('"key"') > 1


def is_to_be_parsed(line: str) -> bool:
    """Whether a log line is of the run, or one of a step that does not end as a whole line does.

    Parsing every line of a step would take most of the time that reading takes.
    """
    return is_of_the_run(line) or not line.rstrip().endswith("}}")
