"""Lets an observer watch readers, so that what they read can be checked before anyone uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

Feed = Callable[[memoryview], None]
"""Takes the bytes of a read in order, in pieces of any size; may raise ``DataError`` at the last one."""


class ReadObserver(Protocol):
    """Watches readers."""

    def reading(self, file: int, path: Path, offset: int, size: int) -> Feed | None:
        """``size`` bytes of the open ``file`` from ``offset`` on are about to be read; returns a feed, if wanted."""

    def reading_file(self, path: Path) -> None:
        """A library is about to read from ``path``; may raise ``DataError``."""


_OBSERVER: ContextVar[ReadObserver | None] = ContextVar("observer", default=None)


@contextmanager
def observed(observer: ReadObserver) -> Iterator[None]:
    """Within this context, ``observer`` watches all that readers of this package read in this thread."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def reading(file: int, path: Path, offset: int, size: int) -> Feed | None:
    """Announce what is about to be read; returns what takes it, if anything does."""
    observer = _OBSERVER.get()
    return None if observer is None or not size else observer.reading(file, path, offset, size)


def have_read(file: int, path: Path, offset: int, data: memoryview) -> None:
    """The same for bytes that were already read. Raises ``DataError`` if the observer does."""
    feed = reading(file, path, offset, len(data))
    if feed is not None:
        feed(data)


def reading_file(path: Path) -> None:
    """Announce that a library is about to read from a file. Raises ``DataError`` if the observer does."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer.reading_file(path)
