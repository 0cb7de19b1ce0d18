"""Opens files that others wrote, and only regular files, since opening a pipe could wait forever."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from staging.errors import DataError

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MOST_BYTES = 2 << 30
"""The most that readers take of a file whose size is not known: a universe of the published size, 1 GiB, and room."""
ROOM = 1 << 16
"""Bytes that a format may add to a sample's content: framing, names, further small features."""
KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link",
}  # fmt: skip


@contextmanager
def opened(path: Path) -> Iterator[io.FileIO]:
    """``path`` open for reading, unbuffered, links followed. Never waits for a writer.

    Raises ``DataError`` if it is missing, not a regular file, or cannot be read, also while it is open.
    """
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", "check the path and its permissions") from error


def read_bytes(path: Path) -> bytes:
    """The content of ``path``. Raises ``OSError`` as a path does, and ``DataError`` for a pipe, socket or device."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with open_regular(path) as file:
        return file.readall()


def read_text(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """``read_bytes`` as text, with line ends as ``\\n``."""
    with io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding, errors) as text:
        return text.read()


def refuse_special(path: Path) -> None:
    """Raise ``DataError`` unless ``path``, links followed, is a regular file; it is not opened."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", "check the path and its permissions") from error
    if not stat.S_ISREG(mode):
        raise special(path, mode)


def special(path: object, mode: int) -> DataError:
    """The error for something else in the place of a file; ``mode`` is its ``st_mode``."""
    return DataError(path, f"is {KINDS.get(stat.S_IFMT(mode), 'something special')}, not a file", "remove it")


def read_at_most(file: io.FileIO, size: int) -> memoryview:
    """The next ``size`` bytes of ``file``, fewer only at its end."""
    # NumPy puts its memory in huge pages where it can, which takes a tenth of the time of fresh small pages.
    whole = np.empty(size, np.uint8).data
    done = 0
    while done < size:
        count = file.readinto(whole[done:])
        if not count:
            break
        done += count
    return whole[:done]


def open_regular(path: Path) -> io.FileIO:
    """Open a file without waiting. Raises ``DataError`` for what is not a regular file, and ``OSError``."""
    try:
        descriptor = os.open(path, FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # the error of opening a socket
            refuse_special(path)
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise special(path, mode)
        # If a reader does not wait, some hierarchical storage refuses what it has on tape rather than fetch it.
        os.set_blocking(descriptor, True)
        return io.FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
