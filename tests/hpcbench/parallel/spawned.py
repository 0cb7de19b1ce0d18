"""The command that starts ranks of a program as ``--parallel.devices`` starts its own."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "programs" / "spawned.py"


def spawned(ranks: int, *words: object) -> list[str]:
    """``words`` are the program and its arguments; more may be added."""
    return [sys.executable, str(PROGRAM), str(ranks), *map(str, words)]
