"""Writes a file under a temporary name and renames it when it is complete."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY_SUFFIX = ".part"
TEMPORARY = re.compile(r"\..+\.([0-9a-f]{12,}|[0-9a-f]{8}-[0-9a-f]{6,})\.part", re.DOTALL)
"""A name, and the token of who writes: of ``replacing`` or a sink, or of ranks that share a file and its number."""


def is_temporary(name: str) -> bool:
    """Whether a file name is one that staging uses while it writes; a hidden ``.part`` file of others is none."""
    return name.endswith(TEMPORARY_SUFFIX) and TEMPORARY.fullmatch(name) is not None


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` on success, remove it on failure.

    Readers see the old file or the whole new one. The name is unique among processes and nodes. ``durable`` waits
    until the disk has the data before the rename, and the name after it: then a crash of the machine leaves no empty
    file behind, and what follows may rely on the new one.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        if durable:
            sync_file(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def take_name(part: Path, path: Path) -> None:
    """Give ``part`` the name ``path``. Raises ``FileExistsError`` where another process was faster.

    On a filesystem without links two processes at the same instant are not told apart.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        # A network filesystem may repeat a request that had succeeded.
        if part.stat().st_nlink == 1:
            raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        part.replace(path)


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, such that a crash of the machine does not take them away."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder. Filesystems that know no such thing are left alone."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_descriptor(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def sync_descriptor(folder: int) -> None:
    """As ``sync_folder``, of an open one."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_file(path: Path) -> None:
    """Wait until the disk has what was written to a file, by whomever. Raises ``OSError`` with its name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
