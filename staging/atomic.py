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
"""A name and the writer's token: of ``replacing`` or a sink, or of ranks that share a file, with its number."""


def is_temporary(name: str) -> bool:
    """Whether staging uses such a file name while it writes; hidden ``.part`` files of others do not count."""
    return name.endswith(TEMPORARY_SUFFIX) and TEMPORARY.fullmatch(name) is not None


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` on success, remove it on failure.

    Readers see the old file or the whole new one. The name is unique among processes and nodes. With ``durable``, wait
    until the disk has the data before the rename, and the name after it: a crash of the machine then leaves no empty
    file behind, and later steps may rely on the new one.
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
    """Give ``part`` the name ``path``. Raises ``FileExistsError`` if another process was faster.

    On a filesystem without links, two processes that do so at the same instant cannot be told apart.
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
    """Make a folder and the missing folders above it so that they survive a crash of the machine."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder. Does nothing on filesystems that do not support this."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_descriptor(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def sync_descriptor(folder: int) -> None:
    """Like ``sync_folder``, for an open folder."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_file(path: Path) -> None:
    """Wait until the disk has what any process wrote to a file. Raises ``OSError`` with the file's name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
