"""The processes that this one has started, such as readers of data, and those that they have."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def descendants() -> list[int]:
    """Their ids, parents first; those that end meanwhile may be missing.

    From the kernel's lists of children. Looking for parents in all processes of a node, as psutil does, takes longer
    the more there are; that is only done where the kernel keeps no lists (``CONFIG_PROC_CHILDREN``).
    """
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process().children(recursive=True)]
        return []
    found = [os.getpid()]
    for pid in found:  # which grows
        found += _children(pid)
    return found[1:]


def _children(pid: int) -> list[int]:
    """Those of all threads of a process; none where it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found
