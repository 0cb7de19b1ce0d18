"""A lock on a run folder while a process works there, so that a second run that is started by hand is refused.

It is on the folder itself, so it leaves no file, and it ends with the process, however that ends. File systems that
lock no folders, such as NFS, have none.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_locks: dict[Path, int] = {}
"""The descriptors of the folders that this process works in."""


def lock(folder: Path) -> None:
    """Lock a folder for this process, if it exists, its file system can, and nobody else has; a second time is one."""
    path = folder.resolve()
    if path in _locks:
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return
    _locks[path] = descriptor


def unlock(folder: Path) -> None:
    """Give a folder back, if this process has it."""
    descriptor = _locks.pop(folder.resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def is_locked(folder: Path, wait_s: float = 0.0) -> bool:
    """Whether another process works in the folder, still after ``wait_s``: a killed one takes a moment to end."""
    until = time.monotonic() + wait_s
    while has_lock_of_another(folder):
        if time.monotonic() >= until:
            return True
        time.sleep(0.1)
    return False


def has_lock_of_another(folder: Path) -> bool:
    """Whether another process has locked the folder at this moment."""
    path = folder.resolve()
    if path in _locks:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _close_in_child() -> None:
    """Processes that read samples may live longer than the run, and would keep its locks."""
    for descriptor in _locks.values():
        os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_close_in_child)
