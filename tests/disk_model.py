"""A disk that forgets what it was not told to keep: records what a program does to a folder, and replays crashes of it.

POSIX promises little: of a file that was not synced any part may be there after a crash, and of the names made, renamed
and removed in a folder since it was synced, each may have happened or not, in any combination.
"""

from __future__ import annotations

import ctypes
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

REAL = {name: getattr(os, name) for name in ("fsync", "replace", "unlink", "mkdir", "rmdir", "utime")}
"""The system's functions, which stand behind those that record."""

State = dict[str, bytes | None]
"""What a crash leaves: the content of each path below the root; ``None`` is a folder."""
Times = dict[str, int]
"""Modification times in nanoseconds of the paths whose files were given one."""


@dataclass(frozen=True)
class Event:
    """``create``, ``write``, ``time``, ``sync``, ``rename``, ``unlink``, ``mkdir``, ``rmdir``, ``sync folder``,
    ``sync all`` (of what is below ``path``, which is a disk of its own) or a note of the test."""

    kind: str
    path: str = ""
    file: int = 0
    content: bytes = b""
    to: str = ""
    note: Any = None
    time_ns: int = 0


@dataclass
class Recorder:
    """What was done below ``root``, in order. Writes are found by looking at the files before everything else."""

    root: Path
    disks: bool = False
    """Whether each folder of the root is on a disk of its own; else all of it is on one."""
    events: list[Event] = field(default_factory=list)
    _seen: dict[int, bytes] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)
    """A number for each file; that of its inode may be used again for another."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def note(self, value: Any) -> None:
        """Add a note of the test."""
        self.look()
        self.events.append(Event("note", note=value))

    def know(self, files: Mapping[str, int]) -> None:
        """Before anything is recorded: the numbers of files that are there, by their names below the root."""
        for name, number in files.items():
            path = self.root / name
            self._numbers[path.stat().st_ino], self._seen[number] = number, path.read_bytes()

    def look(self) -> None:
        """Find new files, and what was written to them, however it was written."""
        for path in sorted(each for each in self.root.rglob("*") if each.is_file()):
            number, content = self._number(path.stat().st_ino), path.read_bytes()
            if number not in self._seen:
                self.events.append(Event("create", self._name(path), number))
                self._seen[number] = b""
            if content != self._seen[number]:
                self.events.append(Event("write", file=number, content=content))
                self._seen[number] = content

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, changes of names and times and waits for the disk are recorded, from all threads."""
        with (
            patch.multiple(os, fsync=self._fsync, rename=self._rename, replace=self._rename),
            patch.multiple(os, unlink=self._unlink, remove=self._unlink, mkdir=self._mkdir, rmdir=self._rmdir),
            patch.multiple(os, utime=self._utime),
            patch.object(ctypes, "CDLL", _Libraries(ctypes.CDLL, self._syncfs)),
        ):
            yield
        self.look()

    def _fsync(self, descriptor: int) -> None:
        with self._lock:
            self.look()
            found = os.fstat(descriptor)
            name = self._name(_path(descriptor))
            kind = "sync folder" if stat.S_ISDIR(found.st_mode) else "sync"
            self.events.append(Event(kind, name, 0 if kind == "sync folder" else self._number(found.st_ino)))
            REAL["fsync"](descriptor)

    def _syncfs(self, descriptor: int) -> int:
        with self._lock:
            self.look()
            self.events.append(Event("sync all", _node(self._name(_path(descriptor))) if self.disks else ""))
        return 0

    def _rename(self, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        with self._lock:
            self.look()
            source, target = _path(old, src_dir_fd), _path(new, dst_dir_fd)
            number = self._number(source.stat().st_ino)
            replaced = target.stat().st_ino if target.exists() else None
            REAL["replace"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            if replaced is not None and replaced != target.stat().st_ino:
                self._numbers.pop(replaced)
            self.events.append(Event("rename", self._name(source), number, to=self._name(target)))

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        full = _path(path, dir_fd)
        if not full.is_relative_to(self.root):
            REAL["unlink"](path, dir_fd=dir_fd)
            return
        with self._lock:
            self.look()
            inode = full.stat().st_ino
            REAL["unlink"](path, dir_fd=dir_fd)
            self.events.append(Event("unlink", self._name(full), self._numbers.pop(inode)))

    def _mkdir(self, path: Any, *arguments: Any, dir_fd: int | None = None) -> None:
        with self._lock:
            REAL["mkdir"](path, *arguments, dir_fd=dir_fd)
            self.events.append(Event("mkdir", self._name(_path(path, dir_fd))))

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        full = _path(path, dir_fd)
        with self._lock:
            self.look()
            REAL["rmdir"](path, dir_fd=dir_fd)
            self.events.append(Event("rmdir", self._name(full)))

    def _utime(self, path: Any, *arguments: Any, **more: Any) -> None:
        with self._lock:
            self.look()
            REAL["utime"](path, *arguments, **more)
            if _path(path).is_relative_to(self.root):
                status = os.stat(path)  # noqa: PTH116  # it may be a descriptor
                self.events.append(Event("time", file=self._number(status.st_ino), time_ns=status.st_mtime_ns))

    def _number(self, inode: int) -> int:
        return self._numbers.setdefault(inode, max(self._seen, default=0) + 1)

    def _name(self, path: Path) -> str:
        return "" if path == self.root else str(path.relative_to(self.root))


@dataclass(frozen=True)
class _Libraries:
    """In the place of ``ctypes.CDLL``: the same libraries, with another ``syncfs``."""

    real: Callable[..., Any]
    syncfs: Callable[[int], int]

    def __call__(self, *words: Any, **more: Any) -> Any:
        class Library:
            syncfs = staticmethod(self.syncfs)

            def __getattr__(self, name: str) -> Any:
                return getattr(library, name)

        library = self.real(*words, **more)
        return Library()


def _path(path: Any, folder: int | None = None) -> Path:
    """The absolute path of a name, which may be in an open folder, or of a descriptor."""
    if isinstance(path, int):
        return Path(f"/proc/self/fd/{path}").readlink()
    return Path(path) if folder is None else _path(folder) / path


@dataclass
class Disk:
    """What is on the disk for certain, and what may be."""

    names: dict[str, int | None] = field(default_factory=dict)
    synced: dict[int, bytes] = field(default_factory=dict)
    written: dict[int, bytes] = field(default_factory=dict)
    pending: list[Event] = field(default_factory=list)
    """Changes of names that no sync of their folder followed."""
    times: dict[int, int] = field(default_factory=dict)
    """Modification times that files were given."""
    synced_times: dict[int, int] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Go on by an event."""
        if event.kind == "write":
            self.written[event.file] = event.content
            self.times.pop(event.file, None)
        elif event.kind == "time":
            self.times[event.file] = event.time_ns
        elif event.kind == "sync":
            self._sync(event.file)
        elif event.kind == "sync all":
            self._sync_all(event.path)
        elif event.kind == "sync folder":
            for each in [each for each in self.pending if _folder(each) == event.path]:
                change(self.names, each)
                self.pending.remove(each)
        elif event.kind != "note":
            self.pending.append(event)

    def crashes(self) -> Iterator[State]:
        """Every state that a crash now may leave; of a file not synced, nothing new, a half, or all."""
        for kept in product((False, True), repeat=len(self.pending)):
            names = dict(self.names)
            for each, happened in zip(self.pending, kept, strict=True):
                if happened:
                    change(names, each)
            names = {path: file for path, file in names.items() if _parents(path) <= set(names)}
            files = {file for file in names.values() if file is not None}
            loose = sorted(file for file in files if self.written.get(file, b"") != self.synced.get(file, b""))
            for contents in product(*(self._contents(file) for file in loose)):
                content = {**self.synced, **dict(zip(loose, contents, strict=True))}
                yield {path: None if file is None else content.get(file, b"") for path, file in names.items()}

    def crash(self, random: Random) -> tuple[State, Times]:
        """A state that a crash now may leave, drawn: more than ``crashes`` has, and no end of them.

        A file that was not synced may be as long as it was made and hold zeros from anywhere on, and have its new time
        whatever it holds. Each folder of the root is a node, of which all may be lost while another keeps all.
        """
        names, lost = dict(self.names), self._odds(random)
        for each in self.pending:
            if random.random() >= lost[_node(each.path)]:
                change(names, each)
        names = {path: file for path, file in names.items() if _parents(path) <= set(names)}
        files = {file: _node(path) for path, file in sorted(names.items()) if file is not None}
        torn = self._odds(random)
        contents = {
            file: self._torn(file, random) if random.random() < torn[node] else self._now(file)
            for file, node in files.items()
        }
        known = {file: random.choice((self.times, self.synced_times)).get(file) for file in files}
        times = {path: time for path, file in names.items() if file is not None and (time := known[file]) is not None}
        return {path: None if file is None else contents[file] for path, file in names.items()}, times

    def _odds(self, random: Random) -> dict[str, float]:
        """For each node how much of what was not synced is lost."""
        nodes = sorted({_node(path) for path in (*self.names, *(each.path for each in self.pending))})
        return {node: random.choice((0.0, 0.1, 0.5, 0.9, 1.0)) for node in nodes}

    def _sync_all(self, disk: str) -> None:
        names = dict(self.names)
        for each in self.pending:
            change(names, each)
        for file in {file for path, file in names.items() if file is not None and (not disk or _node(path) == disk)}:
            self._sync(file)
        for each in [each for each in self.pending if not disk or _node(each.path) == disk]:
            change(self.names, each)
            self.pending.remove(each)

    def _sync(self, file: int) -> None:
        self.synced[file] = self._now(file)
        if file in self.times:
            self.synced_times[file] = self.times[file]

    def _now(self, file: int) -> bytes:
        return self.written.get(file, b"")

    def _torn(self, file: int, random: Random) -> bytes:
        old, new = self.synced.get(file, b""), self._now(file)
        if old == new:
            return new
        least = len(old) if new.startswith(old) else 0
        kept = random.choice((least, random.randint(least, len(new))))  # the end of what was synced is a place to break
        return random.choice((old, new[:kept], new[:kept] + bytes(len(new) - kept), new))

    def _contents(self, file: int) -> list[bytes]:
        old, new = self.synced.get(file, b""), self.written[file]
        kept = len(old) if new.startswith(old) else 0  # what was appended may be cut off, and no more
        return list(dict.fromkeys([old, new[: kept + (len(new) - kept) // 2], new]))


def change(names: dict[str, int | None], event: Event) -> None:
    """Make, rename or remove a name."""
    if event.kind == "rename":
        names.pop(event.path, None)
        names[event.to] = event.file
    elif event.kind in ("unlink", "rmdir"):
        names.pop(event.path, None)
    else:
        names[event.path] = None if event.kind == "mkdir" else event.file


def materialize(state: State, root: Path, times: Mapping[str, int] | None = None) -> None:
    """Make files and folders of a state below the empty folder ``root``, and give files their ``times``."""
    for path, content in sorted(state.items()):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
    for path, time_ns in (times or {}).items():
        os.utime(root / path, ns=(time_ns, time_ns))


def _node(path: str) -> str:
    return path.partition("/")[0]


def _folder(event: Event) -> str:
    return str(Path(event.path).parent).removeprefix(".")


def _parents(path: str) -> set[str]:
    return {str(each) for each in Path(path).parents if str(each) != "."}
