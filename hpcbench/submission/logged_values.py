"""Hyperparameters of an official log, with errors that name the log, the key and the setting to give instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcbench.mlperf.find_logs import find_runs
from hpcbench.results.mllog_reader import Event, read_events
from staging.bounds import shown
from staging.errors import InputError

OWN = "hpcbench/"
"""File names in the log lines that this suite writes begin with this."""


class LoggedValues:
    """The first value of each key of a log; ``given`` are the settings that the user decides."""

    def __init__(self, path: Path, events: Mapping[str, Event], given: Mapping[str, str]) -> None:
        self.path, self.given = path, given
        self._events = events

    @property
    def is_own(self) -> bool:
        """Whether this suite wrote the log; its base rate is then the peak."""
        return any(str(event.metadata.get("file", "")).startswith(OWN) for event in self._events.values())

    def get(self, key: str) -> Any:
        """The value of a key; ``None`` if the log has no such line."""
        event = self._events.get(key)
        return None if event is None else event.value

    def number(self, key: str, setting: str) -> float:
        """A finite number. Raises ``InputError``."""
        value = as_number(self.get(key))
        if value is None:
            raise self.unfit(key, setting, "a number")
        return value

    def truth(self, key: str, setting: str) -> bool:
        """A boolean, which some logs write as a number. Raises ``InputError``."""
        value = self.get(key)
        return value if isinstance(value, bool) else bool(self.number(key, setting))

    def whole(self, key: str, setting: str) -> int:
        """A whole number of at least 0; the user's value comes first. Raises ``InputError``."""
        if (chosen := as_number(self.given.get(setting))) is not None:
            return int(chosen)
        value = self.number(key, setting)
        if value < 0 or value != int(value):
            raise self.unfit(key, setting, "a whole number of at least 0")
        return int(value)

    def numbers(self, key: str, setting: str) -> list[float]:
        """A list of numbers; a log may write a single one without a list. Raises ``InputError``."""
        value = self.get(key)
        converted = [as_number(entry) for entry in (value if isinstance(value, list) else [value])]
        numbers = [number for number in converted if number is not None]
        if len(numbers) < len(converted):
            raise self.unfit(key, setting, "numbers")
        return numbers

    def milestones(self, key: str, setting: str) -> list[int]:
        """Increasing whole numbers of at least 0. Raises ``InputError``."""
        numbers = self.numbers(key, setting)
        if any(number < 0 or number != int(number) for number in numbers) or sorted(set(numbers)) != numbers:
            raise self.unfit(key, setting, "whole numbers that rise")
        return [int(number) for number in numbers]

    def unfit(self, key: str, setting: str, wanted: str) -> InputError:
        """The error for a key that is missing, or whose value is not ``wanted``."""
        if key not in self._events:
            return self.error(f"has no {key}; give --{setting}")
        return self.error(f"{key} ({shown(self.get(key))}) must be {wanted}; give --{setting}")

    def error(self, words: str) -> InputError:
        """An error that names the log."""
        return InputError(f"--recipe-from {self.path}: {words}")


def read_values(path: Path, given: Mapping[str, str]) -> LoggedValues:
    """The values of the log at ``path``: a file, a run folder, or a folder of the logs of one entry.

    Raises ``InputError`` for a path without logs, or with logs of several entries; ``DataError`` for no log.
    """
    logs = [place.path for place in find_runs([path])]
    folders = {log.parent for log in logs}
    if len(folders) > 1:
        raise InputError(f"--recipe-from {path} has logs in {len(folders)} folders; give one log, or the folder of one")
    events, _ = read_events(logs[0])
    if not events:
        raise InputError(f"--recipe-from {logs[0]} holds no line of an official log (:::MLLOG); give a log")
    first: dict[str, Event] = {}
    for event in events:
        first.setdefault(event.key, event)
    return LoggedValues(logs[0], first, given)


def as_number(value: object) -> float | None:
    """``value`` as a finite number if it is one, or the text of one; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
