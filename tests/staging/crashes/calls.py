"""What a command does to the files below a folder, call by call, as the kernel is asked for it: strace, parsed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.disk_model import Event, State, Times, change
from tests.staging.processes import ENVIRON

TRACED = (
    "openat", "mkdir", "mkdirat", "write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "truncate",
    "fallocate", "copy_file_range", "sendfile", "utimensat", "rename", "renameat", "renameat2", "link", "linkat",
    "symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "fsync", "fdatasync", "sync_file_range", "syncfs", "sync",
    "exit_group",
)  # fmt: skip
END = "exit_group"
REPRODUCIBLE = ENVIRON | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
"""Each run of a command then makes the same calls in the same order, from the start of Python on."""
LINE = re.compile(r"(\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<begun>\w+)\()(?P<rest>.*)")
DONE = re.compile(r"(?P<words>.*)\) += (?P<result>-?\d+|\?)")
FOLDER = re.compile(r"(?:AT_FDCWD|(?P<number>\d+))<(?P<path>(?:\\x..)*)>")
TIME = re.compile(r"tv_sec=(\d+), tv_nsec=(\d+)")
UNFINISHED = " <unfinished ...>"


def lacks_strace() -> str:
    """Why strace can't be had to change what becomes of the calls of a process; empty where it can."""
    if shutil.which("strace") is None:
        return "it is not installed"
    probe = ["strace", "-o", os.devnull, "-e", "inject=write:retval=0", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else lines[-1] if lines else "it may trace no process"


@dataclass(frozen=True)
class Call:
    """A system call that ended."""

    syscall: str
    ordinal: int
    """Which one of this system call it was in its thread, from 1 on, as strace counts with ``when``."""
    words: tuple[str, ...]
    """Its arguments as strace writes them, strings in hexadecimal digits."""
    result: int | None
    """``None`` where the process was killed in it."""

    def path(self, position: int = 0) -> str:
        """The absolute path that begins with argument ``position``: a descriptor, a name, or both."""
        folder = FOLDER.match(self.words[position])
        if folder is None:
            return text(self.words[position])
        behind = self.words[position + 1] if position + 1 < len(self.words) else ""
        name = text(behind) if behind.startswith('"') and self.syscall not in ("write", "pwrite64") else ""
        return os.path.normpath(os.path.join(text(folder["path"]), name))  # noqa: PTH118

    @property
    def descriptor(self) -> int:
        """The number of the descriptor that is the first argument."""
        found = FOLDER.match(self.words[0])
        assert found is not None, self
        return int(found["number"])

    @property
    def flags(self) -> set[str]:
        """Those of ``openat``."""
        return set(self.words[2].split("|"))


def text(word: str) -> str:
    """A path that strace has written in hexadecimal digits."""
    return os.fsdecode(data_of(word))


def data_of(word: str) -> bytes:
    """Bytes that strace has written in hexadecimal digits."""
    assert not word.endswith("..."), "strace has cut it off"
    return bytes.fromhex(word.strip('"').replace("\\x", ""))


def traced(command: Sequence[object], trace: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end under strace, which writes to ``trace`` and gets the words ``more``."""
    strace = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-o", str(trace), "-e", f"trace={','.join(TRACED)}", *more]
    words = [*strace, *(str(word) for word in command)]
    return subprocess.run(words, env=REPRODUCIBLE, capture_output=True, text=True, check=False, timeout=60)


def read_calls(trace: Path) -> list[Call]:
    """The calls of a trace in the order in which they ended; failed ones are among them."""
    counts: Counter[tuple[str, str]] = Counter()
    begun: dict[str, tuple[str, int, str]] = {}
    calls = []
    for line in trace.read_text().splitlines():
        found = LINE.match(line)
        if found is None:
            continue
        thread, rest = found[1], found["rest"]
        if found["resumed"]:
            syscall, ordinal, before = begun.pop(thread)
            rest = before + rest
        else:
            syscall = found["begun"]
            counts[thread, syscall] += 1
            ordinal = counts[thread, syscall]
        if rest.endswith(UNFINISHED):
            begun[thread] = syscall, ordinal, rest.removesuffix(UNFINISHED)
            continue
        done = DONE.match(rest)
        assert done is not None, line
        result = None if done["result"] == "?" else int(done["result"])
        calls.append(Call(syscall, ordinal, tuple(done["words"].split(", ")), result))
    return calls


@dataclass
class Folder:
    """A folder as calls make it, one after the other; ``events`` says what each of them did to it.

    Files have numbers, which stay theirs when they are renamed.
    """

    root: Path
    names: dict[str, int | None] = field(default_factory=dict)
    """Below the root; ``None`` is a folder."""
    contents: dict[int, bytes] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    _open: dict[int, tuple[int, int, bool]] = field(default_factory=dict)
    """File, position, and whether it only appends, of each descriptor."""

    @classmethod
    def of(cls, root: Path) -> Folder:
        """The folder as it is now."""
        found = cls(root)
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            found.names[name] = None
            if path.is_file():
                found.names[name] = number = len(found.contents) + 1
                found.contents[number], found.times[number] = path.read_bytes(), path.stat().st_mtime_ns
        return found

    def copy(self) -> Folder:
        """Another one that goes on from the same names, contents and times."""
        return Folder(self.root, dict(self.names), dict(self.contents), dict(self.times))

    def state(self) -> tuple[State, Times]:
        """Content of all files, and times of those that were given one."""
        state = {name: None if file is None else self.contents[file] for name, file in self.names.items()}
        times = {name: self.times[file] for name, file in self.names.items() if file is not None and file in self.times}
        return state, times

    def follow(self, events: Iterable[Event]) -> None:
        """Go on by events of another recording."""
        for event in events:
            if event.kind in ("create", "mkdir", "rename", "unlink", "rmdir"):
                change(self.names, event)
                self.contents.setdefault(event.file, b"")
            elif event.kind == "write":
                self._write_to(event.file, event.content)
            elif event.kind == "time":
                self.times[event.file] = event.time_ns

    def events(self, calls: Sequence[Call]) -> Iterator[tuple[Call, Event]]:
        """Each call that changes the folder, or waits for the disk to have it, with what it does."""
        for call in calls:
            if call.result is None or call.result < 0 or call.syscall == END:
                continue
            event = getattr(self, f"_{call.syscall}", self._unknown)(call)
            if event is not None:
                yield call, event

    def relative(self, path: str) -> str | None:
        """A path below the root; empty for the root, ``None`` for one outside."""
        if path == str(self.root):
            return ""
        return path.removeprefix(f"{self.root}/") if path.startswith(f"{self.root}/") else None

    def _unknown(self, call: Call) -> None:
        paths = [call.path(number) for number, word in enumerate(call.words) if FOLDER.match(word) or word[:1] == '"']
        assert all(self.relative(path) is None for path in paths), f"nobody knows what {call.syscall} does: {call}"

    def _openat(self, call: Call) -> Event | None:
        name, flags = self.relative(call.path()), call.flags
        if not name or (file := self.names.get(name, 0)) is None or call.result is None:
            return None
        is_new = name not in self.names
        if is_new:
            assert "O_CREAT" in flags, call
            file = self.names[name] = self._make()
        self._open[call.result] = file, 0, "O_APPEND" in flags
        if "O_TRUNC" in flags and self.contents[file]:
            return self._write_to(file, b"")
        return Event("create", name, file) if is_new else None

    def _make(self) -> int:
        number = max(self.contents, default=0) + 1
        self.contents[number] = b""
        return number

    def _write_to(self, file: int, content: bytes) -> Event:
        self.contents[file] = content
        self.times.pop(file, None)
        return Event("write", file=file, content=content)

    def _write(self, call: Call) -> Event | None:
        if self.relative(call.path()) is None or not call.result:
            return None
        file, position, appends = self._open[call.descriptor]
        position = len(self.contents[file]) if appends else position
        self._open[call.descriptor] = file, position + call.result, appends
        return self._write_at(file, position, data_of(call.words[1])[: call.result])

    def _pwrite64(self, call: Call) -> Event | None:
        if self.relative(call.path()) is None or not call.result:
            return None
        return self._write_at(self._open[call.descriptor][0], int(call.words[3]), data_of(call.words[1])[: call.result])

    def _write_at(self, file: int, position: int, data: bytes) -> Event:
        before = self.contents[file].ljust(position, b"\0")
        return self._write_to(file, before[:position] + data + before[position + len(data) :])

    def _ftruncate(self, call: Call) -> Event | None:
        if self.relative(call.path()) is None:
            return None
        file, size = self._open[call.descriptor][0], int(call.words[1])
        return self._write_to(file, self.contents[file][:size].ljust(size, b"\0"))

    def _utimensat(self, call: Call) -> Event | None:
        if self.relative(call.path()) is None:
            return None
        seconds, rest = TIME.findall(", ".join(call.words))[1]
        file = self._open[call.descriptor][0]
        self.times[file] = int(seconds) * 10**9 + int(rest)
        return Event("time", file=file, time_ns=self.times[file])

    def _mkdir(self, call: Call) -> Event | None:
        name = self.relative(call.path())
        if not name:
            return None
        self.names[name] = None
        return Event("mkdir", name)

    _mkdirat = _mkdir

    def _rename(self, call: Call) -> Event | None:
        second = 2 if FOLDER.match(call.words[0]) else 1
        old, new = self.relative(call.path()), self.relative(call.path(second))
        if old is None and new is None:
            return None
        assert old, call
        assert new, call
        file = self.names.pop(old)
        assert file is not None, f"a folder was renamed: {call}"
        self.names[new] = file
        return Event("rename", old, file, to=new)

    _renameat = _rename

    def _unlink(self, call: Call) -> Event | None:
        name = self.relative(call.path())
        if not name:
            return None
        file = self.names.pop(name)
        return Event("rmdir", name) if file is None else Event("unlink", name, file)

    _unlinkat = _rmdir = _unlink

    def _fsync(self, call: Call) -> Event | None:
        name = self.relative(call.path())
        if name is None:
            return None
        file = self.names[name] if name else None
        return Event("sync folder", name) if file is None else Event("sync", name, file)

    def _syncfs(self, call: Call) -> Event | None:
        name = self.relative(call.path())
        return None if name is None else Event("sync all", name)
