"""Finds how much memory this process's control groups, those of its job, leave it (cgroups(7), versions 1 and 2)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

UNLIMITED = 1 << 60
"""Limits from here on mean no limit, for which version 1 writes such a number."""


class _Files(NamedTuple):
    """What a version calls a group's limit, its use, and the parts of its use that are cached files."""

    limit: str
    use: str
    cached: tuple[str, str]


VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
VERSION_2 = _Files("memory.max", "memory.current", ("inactive_file", "active_file"))


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take before a limit on its group, or on one above it, stops it.

    Cached files count as free, as in the kernel's ``MemAvailable``, also those that were read more than once, which
    a dataset is: the kernel drops them before it stops a process. ``None`` without a limit. ``root`` is where ``proc``
    and ``sys`` are.
    """
    left = []
    for group, mount, files in _groups(root):
        chain = [place for place in (group, *group.parents) if place.is_relative_to(mount)]
        left += [room for place in chain if (room := _room(place, files)) is not None]
    return min(left, default=None)


def _groups(root: Path) -> list[tuple[Path, Path, _Files]]:
    """Per hierarchy: folder of this process's group, folder of the topmost visible group, and version."""
    try:
        group_lines = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = [line.split(" ") for line in (root / "proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return []
    groups = []
    for line in group_lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount in mounts:
            kind, _, options = mount[mount.index("-") + 1 :][:3]
            if kind != ("cgroup" if controllers else "cgroup2") or (controllers and "memory" not in options.split(",")):
                continue
            point = root / mount[4].lstrip("/")
            groups.append((point / _below(path, mount[3]), point, VERSION_1 if controllers else VERSION_2))
    return groups


def _below(path: str, shown: str) -> str:
    """Where the group ``path`` is below the mount of the group ``shown``; a container may see only part of them."""
    if ".." in Path(path).parts:
        return ""
    return str(Path(path).relative_to(shown)) if Path(path).is_relative_to(shown) else path.lstrip("/")


def _room(group: Path, files: _Files) -> int | None:
    try:
        limit = (group / files.limit).read_text().strip()
        use = int((group / files.use).read_text())
        counts = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    if limit == "max" or int(limit) >= UNLIMITED:
        return None
    return max(0, int(limit) - use + sum(int(counts.get(name, 0)) for name in files.cached))
