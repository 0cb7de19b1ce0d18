"""Command-line options that take a number within bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from staging.bounds import SHOWN, Bounds, shown
from staging.errors import InputError

MOST_NODES = 1_000_000
MOST_PER_NODE = 100_000
"""The most ranks, cores or GPUs per node."""
MOST_FILES = 10**10

Number = TypeVar("Number", int, float)


def add_whole(
    parser: argparse._ActionsContainer, option: str, low: int, high: int, help: str, *, metavar: str = "N", **more: Any
) -> None:
    """Add an option that takes a whole number from ``low`` to ``high``; ``more`` goes to ``add_argument``.

    Parsing raises ``InputError`` for anything else.
    """
    kind = bounded(option, int, "whole", Bounds(low, high))
    parser.add_argument(option, type=kind, metavar=metavar, help=help, **more)


def add_real(
    parser: argparse._ActionsContainer, option: str, low: float, high: float, help: str, *, metavar: str = "X",
    **more: Any,
) -> None:  # fmt: skip
    """Add an option that takes a finite number from ``low`` to ``high``; otherwise like ``add_whole``."""
    kind = bounded(option, float, "finite", Bounds(low, high))
    parser.add_argument(option, type=kind, metavar=metavar, help=help, **more)


def bounded(option: str, kind: Callable[[str], Number], word: str, bounds: Bounds) -> Callable[[str], Number]:
    """A parser of a number within ``bounds``, which raises ``InputError`` for any other text."""

    def parse(text: str) -> Number:
        try:
            # Python is slow to convert thousands of digits.
            value = kind(text) if len(text) <= SHOWN else None
        except ValueError:
            value = None
        problem = f"must be a {word} number; {bounds.range()}" if value is None else bounds.broken(value)
        if problem or value is None:
            raise InputError(f"{option} ({shown(text)}) {problem}")
        return value

    return parse
