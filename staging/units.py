"""Formats numbers of bytes for people."""

from __future__ import annotations


def human(size: float) -> str:
    """A number of bytes with a decimal unit, such as ``2.83 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1000
    raise AssertionError
