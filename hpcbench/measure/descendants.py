"""The processes that this one has started, such as data readers, and their own descendants."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def descendants() -> list[int]:
    """Return the ids of this process's descendants, parents first; those that end meanwhile may be missing.

    They come from the kernel's lists of children. psutil looks up the parent of every process on the node, which takes
    longer the more there are; it is only used where the kernel keeps no such lists (``CONFIG_PROC_CHILDREN``).
    """
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process().children(recursive=True)]
        return []
    pids = [os.getpid()]
    for pid in pids:  # grows while it is read
        pids += _children(pid)
    return pids[1:]


def _children(pid: int) -> list[int]:
    """The children of all threads of a process; none if it has ended."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += map(int, (thread / "children").read_text().split())
    return children
