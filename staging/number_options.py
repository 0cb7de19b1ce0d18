"""Options of a command line that take a number with bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from staging.bounds import SHOWN, Bounds, shown
from staging.errors import InputError

MOST_NODES = 1_000_000
MOST_PER_NODE = 100_000
"""Of ranks, cores or GPUs."""
MOST_FILES = 10**10

Number = TypeVar("Number", int, float)


def add_whole(
    parser: argparse._ActionsContainer, option: str, low: int, high: int, help: str, *, metavar: str = "N", **more: Any
) -> None:
    """Add an option that takes a whole number from ``low`` to ``high``; ``more`` as of ``add_argument``.

    Parsing raises ``InputError`` for anything else.
    """
    kind = bounded(option, int, "whole", Bounds(low, high))
    parser.add_argument(option, type=kind, metavar=metavar, help=help, **more)


def add_real(
    parser: argparse._ActionsContainer, option: str, low: float, high: float, help: str, *, metavar: str = "X",
    **more: Any,
) -> None:  # fmt: skip
    """Add an option that takes a finite number from ``low`` to ``high``; otherwise as ``add_whole``."""
    kind = bounded(option, float, "finite", Bounds(low, high))
    parser.add_argument(option, type=kind, metavar=metavar, help=help, **more)


def bounded(option: str, kind: Callable[[str], Number], word: str, bounds: Bounds) -> Callable[[str], Number]:
    """Parses a number within ``bounds``. Raises ``InputError`` for any other text."""

    def parse(text: str) -> Number:
        try:
            # Python takes its time with thousands of digits.
            value = kind(text) if len(text) <= SHOWN else None
        except ValueError:
            value = None
        problem = f"must be a {word} number; {bounds.range()}" if value is None else bounds.broken(value)
        if problem or value is None:
            raise InputError(f"{option} ({shown(text)}) {problem}")
        return value

    return parse
