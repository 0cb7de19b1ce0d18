"""Lines of many processes in one file or terminal, as launchers merge them."""

from __future__ import annotations

import sys
from typing import TextIO


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Write ``text`` and its newline at once to ``stream`` (default: standard error), and flush it.

    ``print`` writes the newline on its own where Python does not buffer (``PYTHONUNBUFFERED``, as many containers
    set it), and another process's line can come between the two.
    """
    stream = stream or sys.stderr
    stream.write(f"{text}\n")
    stream.flush()
