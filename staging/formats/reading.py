"""Tells of what readers have read of files, so that it can be checked before anyone uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol


class ReadObserver(Protocol):
    """Is told what was read; may raise ``DataError`` for it."""

    def bytes_read(self, file: int, path: Path, offset: int, data: memoryview) -> None:
        """``data`` are the bytes of the open ``file`` from ``offset`` on."""

    def file_read(self, path: Path) -> None:
        """Anything of ``path`` is about to be read, by a library that does not say what."""


_OBSERVER: ContextVar[ReadObserver | None] = ContextVar("observer", default=None)


@contextmanager
def told_of_reads(observer: ReadObserver) -> Iterator[None]:
    """While entered, ``observer`` is told of all that readers of this package read in this thread."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def tell_of_bytes(file: int, path: Path, offset: int, data: memoryview) -> None:
    """Tell of bytes that were read; raises ``DataError`` where who is told does."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer.bytes_read(file, path, offset, data)


def tell_of_file(path: Path) -> None:
    """Tell of a file that a library reads; raises ``DataError`` where who is told does."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer.file_read(path)
