"""How many bytes a folder can still take, on disk or in memory."""

from __future__ import annotations

import os
from pathlib import Path

MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written below ``folder``, which need not exist yet.

    On a filesystem in memory it is at most what the machine has left: writing more would get processes killed.
    """
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    status = os.statvfs(existing)
    free = status.f_bavail * status.f_frsize
    if filesystem_type(existing) in MEMORY_FILESYSTEMS:
        return min(free, available_memory())
    return free


def filesystem_type(folder: Path) -> str:
    """Type of the filesystem that holds ``folder``, from the kernel's list of mounts; empty where there is none."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    real = os.path.realpath(folder)
    best, kind = "", ""
    for line in lines:
        _, point, name, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind


def available_memory() -> int:
    """Bytes of memory that this machine can still give out; very many where the kernel does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 1 << 62
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields.get("MemAvailable", fields["MemFree"]).split()[0]) * 1024
