"""The destination of a node, held open, so that nothing is read or written through a link below it.

Each folder on the way to a name is opened from the one above it (``openat`` with ``O_NOFOLLOW``): whatever happens to
the tree meanwhile, a name can't lead out of the destination.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from staging.errors import DataError
from staging.formats.regular import special
from staging.storage.write_ways import WriteWay

KEPT = 512
"""The most folders held open, and no more than a quarter of what the process may open; others are reopened."""
LONGEST_NAME = 4095
"""Bytes of a path that the system takes (``PATH_MAX`` includes the zero after it)."""
DEEPEST_NAME = 256
"""The most folders and file of a name: each costs system calls, for every file, and nobody has so many."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
BOOK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
LINKED = (errno.ELOOP, errno.ENOTDIR)
"""Errors for a link, or a file, in the place of a folder."""


class DestinationFolder:
    """The folder ``path``, no part of which is a link; names below it are relative, with ``/`` between their parts.

    ``way`` is how large files in it are written. Used by many threads; a context manager. Raises ``DataError`` if it
    can't be opened. All methods raise ``DataError`` if a link or a file is in the place of a folder, and otherwise
    ``OSError``.
    """

    def __init__(self, path: Path, way: WriteWay = "buffered") -> None:
        self.path = path
        self.way = way
        self._lock = threading.Lock()
        try:
            self._folders = {"": open_unlinked(path)}
        except OSError as error:
            raise DataError(path, f"cannot be opened ({error.strerror})", "choose another destination") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all folders; a second call does nothing."""
        with self._lock:
            while self._folders:
                os.close(self._folders.popitem()[1])

    def __truediv__(self, name: str) -> Path:
        """The path of a name, for messages."""
        return self.path / name

    def held(self, folder: str) -> int | None:
        """The descriptor of a folder below that is already open, and stays so until ``close``; else ``None``."""
        return self._folders.get(folder)

    @contextmanager
    def reach(self, folder: str, *, make: bool = False) -> Iterator[int]:
        """The descriptor of a folder below (empty: this one), within the context; ``make`` makes what is missing."""
        descriptor = self._folders.get(folder)
        if descriptor is not None:
            yield descriptor
            return
        opened = self._walk(folder, make)
        with self._lock:
            is_kept = len(self._folders) < most_kept() and self._folders.setdefault(folder, opened) == opened
        try:
            yield opened
        finally:
            if not is_kept:
                os.close(opened)

    def open(self, name: str, flags: int, *, make: bool = False) -> int:
        """Open a file, which must not be a link; ``make`` makes the folders above it."""
        folder, _, base = name.rpartition("/")
        with self.reach(folder, make=make) as descriptor:
            return os.open(base, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=descriptor)

    def status(self, name: str) -> os.stat_result | None:
        """The status of what has a name, links not followed; ``None`` if nothing has it, or no folder leads to it."""
        folder, _, base = name.rpartition("/")
        try:
            with self.reach(folder) as descriptor:
                return os.stat(base, dir_fd=descriptor, follow_symlinks=False)
        except (OSError, DataError, ValueError):  # the last for a name that no filesystem has
            return None

    def unlink(self, name: str, *, missing_ok: bool = False) -> None:
        """Remove a file, or a link itself."""
        folder, _, base = name.rpartition("/")
        with suppress(*((FileNotFoundError,) if missing_ok else ())), self.reach(folder) as descriptor:
            os.unlink(base, dir_fd=descriptor)

    def remove(self, name: str) -> None:
        """Remove what has a name, a folder with everything in it; nothing if nothing has it."""
        status = self.status(name)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            self.unlink(name, missing_ok=True)
            return
        with self.below(name) as below:
            for _, folders, names, inner in below.walk(topdown=False):
                for file in names:
                    os.unlink(file, dir_fd=inner)
                for subfolder in folders:
                    os.rmdir(subfolder, dir_fd=inner)
        folder, _, base = name.rpartition("/")
        with self.reach(folder) as descriptor:
            os.rmdir(base, dir_fd=descriptor)

    def rename(self, old: str, new: str, source: DestinationFolder | None = None) -> None:
        """Give ``old`` (of this folder, or of ``source``) the name ``new``, which may exist; folders are made."""
        before, _, base = old.rpartition("/")
        after, _, target = new.rpartition("/")
        with (source or self).reach(before) as start, self.reach(after, make=True) as end:
            os.rename(base, target, src_dir_fd=start, dst_dir_fd=end)

    def below(self, name: str, *, make: bool = False, way: WriteWay | None = None) -> DestinationFolder:
        """A folder below (empty: this one), as a separate ``DestinationFolder``; ``way`` is as here if not given."""
        made = object.__new__(DestinationFolder)
        made.path, made.way, made._lock = self.path / name, way or self.way, threading.Lock()
        made._folders = {"": self._walk(name, make)}
        return made

    def walk(self, *, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str], int]]:
        """Like ``os.fwalk`` from here, with the relative name of each folder (empty: this one); a link is no folder.

        However deep the tree is, few folders are open at a time.
        """
        descriptor = self._walk("", make=False)
        try:
            levels = [_Level.of("", descriptor)]
            if topdown:
                yield levels[0].as_fwalk(descriptor)
            while levels:
                level = levels[-1]
                name = level.next()
                if name is not None:
                    try:
                        below = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                    except OSError:  # gone, not ours to read, or a link by now
                        continue
                    os.close(descriptor)
                    descriptor = below
                    levels.append(_Level.of(f"{level.where}/{name}" if level.where else name, descriptor))
                    if topdown:
                        yield levels[-1].as_fwalk(descriptor)
                    continue
                if not topdown:
                    yield level.as_fwalk(descriptor)
                levels.pop()
                if levels:
                    above = self._above(descriptor, levels[-1])
                    os.close(descriptor)
                    descriptor = above
        finally:
            os.close(descriptor)

    def _above(self, descriptor: int, level: _Level) -> int:
        """A new descriptor of the folder of ``level``, which holds an open folder unless that was moved meanwhile."""
        with suppress(OSError):
            above = os.open("..", FOLDER, dir_fd=descriptor)
            if os.path.samestat(os.fstat(above), level.status):
                return above
            os.close(above)
        try:
            return self._walk(level.where, make=False)
        except OSError as error:
            problem = f"went away while it was looked through ({error.strerror})"
            raise DataError(self.path / level.where, problem, "run it again") from None

    def _walk(self, name: str, make: bool) -> int:
        """A new descriptor of a folder below."""
        descriptor, parts = os.dup(self._folders[""]), name.split("/") if name else []
        for number, part in enumerate(parts):
            try:
                following = _open_folder(part, descriptor, make)
            except OSError as error:
                if error.errno in LINKED:
                    raise in_the_way(self.path / "/".join(parts[: number + 1])) from None
                raise
            finally:
                os.close(descriptor)
            descriptor = following
        return descriptor


@dataclass
class _Level:
    """A folder on the way of a walk."""

    where: str
    status: os.stat_result
    folders: list[str]
    names: list[str]
    looked: int = 0

    @classmethod
    def of(cls, where: str, descriptor: int) -> _Level:
        folders: list[str] = []
        names: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        return cls(where, os.fstat(descriptor), folders, names)

    def next(self) -> str | None:
        """The next of its folders."""
        self.looked += 1
        return self.folders[self.looked - 1] if self.looked <= len(self.folders) else None

    def as_fwalk(self, descriptor: int) -> tuple[str, list[str], list[str], int]:
        return self.where, self.folders, self.names, descriptor


def open_unlinked(path: Path) -> int:
    """Open a folder by an absolute path, no part of which may be a link: it was resolved before.

    Raises ``DataError`` if a part is a link by now, otherwise ``OSError``.
    """
    parts = path.parts[1:]
    descriptor = os.open(path.anchor, os.O_PATH | FOLDER if parts else FOLDER)
    for number, part in enumerate(parts, 1):
        # only looked up on the way, since folders above may not be readable
        flags = FOLDER if number == len(parts) else os.O_PATH | FOLDER
        try:
            following = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            if error.errno in LINKED:
                raise in_the_way(Path(*path.parts[: number + 1])) from None
            raise
        finally:
            os.close(descriptor)
        descriptor = following
    return descriptor


def in_the_way(path: Path) -> DataError:
    """The error for a link, or a file, where a folder must be."""
    problem = "is a link or a file where a folder is to be; links are not followed"
    return DataError(path, problem, "remove it, or choose another destination")


def most_kept() -> int:
    """Folders that may be held open."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return KEPT if allowed == resource.RLIM_INFINITY else min(KEPT, allowed // 4)


def _open_folder(name: str, above: int, make: bool) -> int:
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):  # another thread was faster
            os.mkdir(name, dir_fd=above)
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=above)


def is_reachable(name: str) -> bool:
    """Whether a filesystem can have ``name`` below a destination: not too long or deep, and of valid characters."""
    if len(name) > LONGEST_NAME or name.count("/") >= DEEPEST_NAME:
        return False
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return b"\0" not in encoded and len(encoded) <= LONGEST_NAME


def is_file_of(status: os.stat_result | None, size: int) -> bool:
    """Whether this is a file, and no link, of ``size`` bytes."""
    return status is not None and stat.S_ISREG(status.st_mode) and status.st_size == size


def open_book(path: Path, flags: int) -> int:
    """Open a file of a destination's bookkeeping; neither it nor the folder it is in may be a link.

    For writing, no part of its path may be a link, as for a ``DestinationFolder``. Raises ``DataError`` for a link, and
    for a pipe, a device or a folder in its place, which is not waited for, nor opened if it was there before; otherwise
    ``OSError``.
    """
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    folder = open_unlinked(path.parent) if writes else os.open(path.parent, FOLDER | os.O_NOFOLLOW)
    try:
        with suppress(FileNotFoundError):
            _refuse_special(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False))
        descriptor = os.open(path.name, flags | BOOK, 0o666, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _refuse_special(path, os.fstat(descriptor))
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_special(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise special(path, status.st_mode)
