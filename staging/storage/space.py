"""Finds how many bytes and files a folder can still take, on disk or in memory, and if that suffices on all nodes."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from staging.errors import DataError
from staging.ranks.world import World
from staging.storage.cgroup import memory_left
from staging.storage.shared_memory import SHARED_MEMORY, left_over

MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
NO_LIMIT = 1 << 62


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written below ``folder``, which need not exist yet.

    On a filesystem in memory it is at most what this job has left: writing more would get processes killed.
    """
    existing = existing_parent(folder)
    status = os.statvfs(existing)
    free = status.f_bavail * status.f_frsize
    if filesystem_type(existing) in MEMORY_FILESYSTEMS:
        return min(free, available_memory())
    return free


def free_files(folder: Path) -> int:
    """Files that may still be made below ``folder``; very many if its filesystem does not count them."""
    status = os.statvfs(existing_parent(folder))
    return status.f_favail if status.f_files else NO_LIMIT


def bytes_in_blocks(sizes: NDArray[np.int64], folder: Path) -> int:
    """Bytes that files of ``sizes`` take below ``folder``, each in whole blocks of its filesystem."""
    block = block_bytes(folder)
    return int((-(-sizes // block)).sum()) * block


def block_bytes(folder: Path) -> int:
    """Bytes of a block of the filesystem of ``folder``, which need not exist yet."""
    return os.statvfs(existing_parent(folder)).f_frsize


def check_space(
    destination: Path, need_bytes: int, need_files: int, world: World, given_back: tuple[int, int] = (0, 0)
) -> None:
    """Raise the same ``DataError`` on all ranks unless every node has room for what lands on it; collective.

    The needs are those of the caller's node, and so are the bytes and files that are given back before anything lands.
    Those of nodes that share a filesystem of one machine add up.
    """
    own_room: _Room | DataError | None = None
    if world.place.local_rank == 0:
        own_room = _look(destination, (need_bytes, need_files), given_back, world.place.node_name)
    rooms_or_errors = world.all_gather(own_room)
    rooms = [room for room in rooms_or_errors if isinstance(room, _Room)]
    if all(_problem(room_or_error, rooms) is None for room_or_error in rooms_or_errors):
        return
    # looked for only now, since that takes a look at every process
    left = world.all_gather(_left_over(destination, own_room, rooms))
    problems = (_problem(room_or_error, rooms, more) for room_or_error, more in zip(rooms_or_errors, left, strict=True))
    raise next(problem for problem in problems if problem is not None)


@dataclass(frozen=True)
class _Room:
    """What a node needs, has, and gets back: bytes and files."""

    node: str
    folder: str
    filesystem: tuple[str, int]
    need: tuple[int, int]
    free: tuple[int, int]
    given_back: tuple[int, int]
    most_bytes: int
    """What the job may take at all: memory that others were charged for is not given back to it."""

    def needed(self, rooms: list[_Room]) -> tuple[int, int]:
        """Bytes and files that this node and those of ``rooms`` that share its filesystem need."""
        sharing = [other.need for other in rooms if other.filesystem == self.filesystem]
        return sum(need[0] for need in sharing), sum(need[1] for need in sharing)

    def available(self, rooms: list[_Room]) -> tuple[int, int]:
        """Bytes and files that are free on its filesystem once all nodes that share it have given theirs back."""
        sharing = [other.given_back for other in rooms if other.filesystem == self.filesystem]
        free_bytes_ = self.free[0] + sum(back[0] for back in sharing)
        return min(free_bytes_, self.most_bytes), self.free[1] + sum(back[1] for back in sharing)


def _look(destination: Path, need: tuple[int, int], given_back: tuple[int, int], node: str) -> _Room | DataError:
    try:
        filesystem = (socket.gethostname(), existing_parent(destination).stat().st_dev)
        free = (free_bytes(destination), free_files(destination))
    except OSError as error:
        return DataError(destination, f"node {node} cannot look at it ({error.strerror})", "choose another destination")
    in_memory = filesystem_type(existing_parent(destination)) in MEMORY_FILESYSTEMS
    allowed = memory_left() if in_memory else None
    most = NO_LIMIT if allowed is None else max(free[0], allowed)
    return _Room(node, str(destination), filesystem, need, free, given_back, most)


def _left_over(destination: Path, room: _Room | DataError | None, rooms: list[_Room]) -> str:
    """What is left of shared memory on this node that someone could remove to make room; empty if there is none."""
    if not isinstance(room, _Room) or _problem(room, rooms) is None:
        return ""
    existing, (need_bytes, _) = existing_parent(destination), room.needed(rooms)
    if filesystem_type(existing) not in MEMORY_FILESYSTEMS:
        return ""
    same = SHARED_MEMORY.is_dir() and existing.stat().st_dev == SHARED_MEMORY.stat().st_dev
    return str(left_over() or "") if same or available_memory() < need_bytes else ""


def _problem(room: _Room | DataError | None, rooms: list[_Room], left: str = "") -> DataError | None:
    """The error of a node, of which ``left`` is what ``_left_over`` found; ``None`` for one that has room."""
    if not isinstance(room, _Room):
        return room
    (need_bytes, need_files), (free_bytes_, free_files_) = room.needed(rooms), room.available(rooms)
    if need_bytes > free_bytes_:
        problem = f"has {_size(free_bytes_)} free where staging needs {_size(need_bytes)}"
    elif need_files > free_files_:
        problem = f"can take {free_files_} more files where staging needs {need_files}"
    else:
        return None
    sharing = sum(other.filesystem == room.filesystem for other in rooms)
    shared = f" for the {sharing} nodes that share it" if sharing > 1 else ""
    change = "free some, or choose a larger place"
    if left:
        change = f"{SHARED_MEMORY} holds {left}: remove it, {change}"
    return DataError(room.folder, f"node {room.node} {problem}{shared}", change)


def existing_parent(folder: Path) -> Path:
    """``folder``, or the nearest one above it that exists."""
    return next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())


def filesystem_type(folder: Path) -> str:
    """Type of the filesystem that holds ``folder``, from the kernel's list of mounts; empty if there is none."""
    return mount_of(folder)[1]


def mount_of(folder: Path) -> tuple[str, str]:
    """Device and type of the filesystem that holds ``folder``; empty if the kernel keeps no list of mounts."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return "", ""
    real = os.path.realpath(folder)
    best, mount = "", ("", "")
    for line in lines:
        device, point, kind, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, mount = point, (device, kind)
    return mount


def available_memory(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may still take: what the machine has left and what its cgroups allow.

    Very many if the kernel does not say. ``root`` is where ``proc`` and ``sys`` are.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return NO_LIMIT
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    machine = int(fields.get("MemAvailable", fields["MemFree"]).split()[0]) * 1024
    allowed = memory_left(root)
    return machine if allowed is None else min(machine, allowed)


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"
