"""Formats counts and numbers of bytes for people."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """``1 file``, ``3 files``; ``thing`` is a noun whose plural ends in s."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def human(size: float) -> str:
    """A number of bytes with a decimal unit, such as ``2.83 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1000
    raise AssertionError
