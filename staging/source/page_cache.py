"""The page cache: whether reads came from it, as far as the system tells, and dropping files from it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CacheState = Literal["cold", "warm", "mixed", "unknown"]

LOCAL_DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "vfat", "overlay"})
"""Filesystems whose disk reads the kernel charges to the process; for network filesystems it may not."""


@dataclass(frozen=True)
class IoCounters:
    """What the kernel counted for this process: bytes of read calls, and bytes that came from storage for them."""

    rchar: int
    read_bytes: int

    @classmethod
    def now(cls) -> IoCounters | None:
        """The counters of this process; ``None`` if the system has none."""
        try:
            lines = Path("/proc/self/io").read_text().splitlines()
        except OSError:
            return None
        values = dict(line.split(": ") for line in lines)
        return cls(int(values["rchar"]), int(values["read_bytes"]))


def cache_state(before: IoCounters | None, after: IoCounters | None, read: int, filesystem: str) -> CacheState:
    """Label ``read`` bytes of a source on ``filesystem`` (its type) by how many came from storage meanwhile."""
    if filesystem in ("tmpfs", "ramfs"):
        return "warm"
    if before is None or after is None or read == 0:
        return "unknown"
    share = (after.read_bytes - before.read_bytes) / read
    if share > 0.9:
        return "cold"
    if share > 0.1:
        return "mixed"
    return "warm" if filesystem in LOCAL_DISKS else "unknown"


def drop_cache(files: Iterable[Path]) -> int:
    """Ask the operating system to drop the pages of ``files`` from its cache; returns the number of files accepted.

    Pages not yet on disk cannot be dropped, so they are written first. Returns 0 if there is no such call.
    """
    if not hasattr(os, "posix_fadvise"):
        return 0
    advised = 0
    for path in files:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe is not waited for
        except OSError:
            continue
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            advised += 1
        except OSError:
            pass
        finally:
            os.close(descriptor)
    return advised
