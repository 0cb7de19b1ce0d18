"""Writes a file under a temporary name and renames it when it is complete."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY_SUFFIX = ".part"


def is_temporary(name: str) -> bool:
    """Whether a file name is one that ``replacing`` uses while it writes."""
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` on success, remove it on failure.

    Readers see the old file or the whole new one. The name is unique among processes and nodes. ``durable`` waits
    until the disk has the data before the rename, so that a crash of the machine leaves no empty file behind.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        if durable:
            _sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
