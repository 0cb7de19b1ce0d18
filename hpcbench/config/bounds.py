"""Bounds of the numbers of a configuration: declared with each field, and checked by one function."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from staging.bounds import Bounds, shown
from staging.errors import InputError

BOUNDS = "bounds"
"""Metadata of a field that holds numbers, alone or in a list: its ``Bounds``."""
UNBOUNDED = "unbounded"
"""Metadata of such a field: the place of an entry that may be infinite, such as ``[1]``, and then sets no bound."""
LARGEST = 2**63 - 1
"""Largest magnitude of a whole number whose field declares no bounds: what 64 bits hold."""


FREE = Bounds(-LARGEST, LARGEST)
"""What holds for whole numbers without declared bounds."""
FINITE = Bounds(-math.inf, math.inf)
"""What holds for other numbers without declared bounds."""


def within(
    low: float, high: float, *, open_low: bool = False, open_high: bool = False, why: str = ""
) -> Mapping[str, Bounds]:
    """Metadata of a numeric field: ``lr: float = field(default=0.1, metadata=within(0, 10))``."""
    return {BOUNDS: Bounds(low, high, open_low, open_high, why)}


def check_bounds(config: Any, prefix: str = "") -> None:
    """Raise ``InputError`` for the first number of the dataclass ``config``, or of one in it, outside its bounds.

    Lists and tuples are checked entry by entry. Numbers without declared bounds must be finite and fit in 64 bits.
    """
    for field in dataclasses.fields(config):
        key, value = f"{prefix}{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            check_bounds(value, f"{key}.")
            continue
        bounds: Bounds | None = field.metadata.get(BOUNDS)
        for place, entry in numbers(value):
            if entry == math.inf and place == field.metadata.get(UNBOUNDED):
                continue
            wrong = (bounds or (FREE if isinstance(entry, int) else FINITE)).broken(entry)
            if wrong:
                raise InputError(f"{key}{place} ({shown(entry)}) {wrong if bounds else wrong.partition(';')[0]}")


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a value, with its place: ``[2]`` in a list, nothing for a single value."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield place, value
    elif isinstance(value, (list, tuple)):
        for position, entry in enumerate(value):
            yield from numbers(entry, f"{place}[{position}]")
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from numbers(entry, f"{place}[{key}]")
