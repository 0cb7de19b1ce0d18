"""Bounds of numbers, and the message for a number outside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SHOWN = 60
"""The most characters of a bad value that a message shows."""


@dataclass(frozen=True)
class Bounds:
    """The numbers that a field takes: from ``low`` to ``high``, each included unless it is ``open``."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    why: str = ""
    """Where the upper bound comes from, if that is not obvious."""

    def broken(self, value: float) -> str:
        """A message on what is wrong with ``value`` and what to change; empty if it is within the bounds."""
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be a finite number; {self.range()}"
        if value < self.low or (self.open_low and value == self.low):
            return f"must be {'above' if self.open_low else 'at least'} {number(self.low)}; {self.range()}"
        if value > self.high or (self.open_high and value == self.high):
            why = f", since {self.why}" if self.why else ""
            return f"must be {'below' if self.open_high else 'at most'} {number(self.high)}{why}; {self.range()}"
        return ""

    def range(self) -> str:
        """The allowed range, as an instruction."""
        if not (self.open_low or self.open_high):
            return f"choose from {number(self.low)} to {number(self.high)}"
        first, last = "above" if self.open_low else "at least", "below" if self.open_high else "at most"
        return f"choose {first} {number(self.low)} and {last} {number(self.high)}"


def number(value: float) -> str:
    """A bound as a user types it: ``10000``, ``0.5``."""
    return str(value) if isinstance(value, int) else f"{value:g}"


def shown(value: object) -> str:
    """A value for a message, in one line of at most ``SHOWN`` characters."""
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        return f"a number of more than {SHOWN} digits"
    if isinstance(value, (list, tuple)):
        text = f"[{', '.join(shown(entry) for entry in value[:SHOWN])}]"
    elif isinstance(value, Mapping):
        text = f"{{{', '.join(f'{shown(key)}: {shown(entry)}' for key, entry in list(value.items())[:SHOWN])}}}"
    else:
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
