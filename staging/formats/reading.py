"""Lets readers be watched, so that what they read can be checked before anyone uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

Feed = Callable[[memoryview], None]
"""Takes the bytes of a read in order, in any pieces; may raise ``DataError`` at the last."""


class ReadObserver(Protocol):
    """Who watches."""

    def reading(self, file: int, path: Path, offset: int, size: int) -> Feed | None:
        """``size`` bytes of the open ``file`` from ``offset`` on are about to be read; who wants them, if anyone."""

    def reading_file(self, path: Path) -> None:
        """A library is about to read anything of ``path``; may raise ``DataError``."""


_OBSERVER: ContextVar[ReadObserver | None] = ContextVar("observer", default=None)


@contextmanager
def observed(observer: ReadObserver) -> Iterator[None]:
    """While entered, ``observer`` watches all that readers of this package read in this thread."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def reading(file: int, path: Path, offset: int, size: int) -> Feed | None:
    """Say what is about to be read, and get who takes it, if anyone does."""
    observer = _OBSERVER.get()
    return None if observer is None or not size else observer.reading(file, path, offset, size)


def have_read(file: int, path: Path, offset: int, data: memoryview) -> None:
    """The same for bytes that were read already. Raises ``DataError`` where who watches does."""
    feed = reading(file, path, offset, len(data))
    if feed is not None:
        feed(data)


def reading_file(path: Path) -> None:
    """Say that a library is about to read of a file. Raises ``DataError`` where who watches does."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer.reading_file(path)
