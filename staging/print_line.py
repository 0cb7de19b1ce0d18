"""Prints whole lines, since launchers merge those of many processes into one file or terminal."""

from __future__ import annotations

import sys
from typing import TextIO


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Write ``text`` and its newline at once to ``stream`` (default: standard error), and flush it.

    ``print`` writes the newline separately if Python does not buffer (``PYTHONUNBUFFERED``, which many containers
    set), and another process's line can come between the two.
    """
    stream = stream or sys.stderr
    stream.write(f"{text}\n")
    stream.flush()
