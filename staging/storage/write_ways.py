"""Ways to write a large file: how soon the disk gets it, and whether it stays in memory.

The system keeps written data in memory and stores them when it has time. A staging waits for the disk at its end,
so it is faster if storing begins at once.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from staging.errors import InputError
from staging.storage.holes import HOLE_BYTES, runs_of_data
from staging.storage.space import MEMORY_FILESYSTEMS, existing_parent, filesystem_type

WriteWay = Literal["buffered", "early", "uncached"]
"""``buffered``: stored when the system wants. ``early``: storing begins after each piece, which stays in memory for the
first reader. ``uncached``: it begins at once, and the memory is free again when the disk has it."""
WAYS: tuple[WriteWay, ...] = get_args(WriteWay)
DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")
"""Filesystems that are written ``early`` if no probe has found what is fastest."""
RWF_DONTCACHE = 0x80
"""A flag of pwritev2(2), from Linux 6.14 on, where the filesystem has it."""
REFUSALS = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def choose_way(asked: str, probed: str, folder: Path) -> WriteWay:
    """The way that is asked for, or for ``auto`` the one that a probe found, or that suits ``folder``'s filesystem.

    Raises ``InputError`` if the one that is asked for does not work there, or can't be tried, as on a full disk.
    """
    kind = filesystem_type(existing_parent(folder))
    if asked != "auto":
        try:
            ways = ways_at(folder)
        except OSError as error:
            raise InputError(
                f"--write-way {asked} cannot be tried at {folder} ({error.strerror}): make room, or take auto"
            ) from None
        if asked not in ways:
            raise InputError(
                f"--write-way {asked} does not work at {folder} ({kind}): take {' or '.join(ways)}, or auto"
            )
        return WAYS[WAYS.index(asked)]
    with suppress(OSError):  # such as a full disk, onto which there may be nothing to write
        if probed in WAYS and probed in ways_at(folder):
            return WAYS[WAYS.index(probed)]
    return "early" if kind in DISKS else "buffered"


def ways_at(folder: Path) -> list[WriteWay]:
    """The ways that work for files in ``folder``, which exists. In memory there is only one."""
    if filesystem_type(folder) in MEMORY_FILESYSTEMS:
        return ["buffered"]
    return [way for way in WAYS if _works(folder, way)]


def write_at(descriptor: int, data: memoryview, position: int, way: WriteWay) -> None:
    """Write ``data`` into a file from ``position`` on, without long runs of zeros: the caller sets its length.

    Less than ``HOLE_BYTES`` is written as a whole, and ``buffered``.
    """
    if len(data) < HOLE_BYTES:
        _write(descriptor, data, position, 0)
        return
    flags = RWF_DONTCACHE if way == "uncached" else 0
    for start, stop in runs_of_data(data, position):
        _write(descriptor, data[start:stop], position + start, flags)
        if way == "early" and hasattr(os, "posix_fadvise"):
            # starts storing; only pages that are already stored leave the memory
            os.posix_fadvise(descriptor, position + start, stop - start, os.POSIX_FADV_DONTNEED)


def _write(descriptor: int, data: memoryview, position: int, flags: int) -> None:
    done = 0
    while done < len(data):
        if flags:
            done += os.pwritev(descriptor, [data[done:]], position + done, flags)
        else:
            done += os.pwrite(descriptor, data[done:], position + done)


def _works(folder: Path, way: WriteWay) -> bool:
    """Try it with a file that has no name, or, if that is impossible, one that is removed with what probes left."""
    with tempfile.TemporaryFile(dir=folder, prefix="probe.way.") as file:
        try:
            write_at(file.fileno(), memoryview(b"1" * HOLE_BYTES), 0, way)
        except OSError as error:
            if error.errno in REFUSALS:
                return False
            raise
    return True
