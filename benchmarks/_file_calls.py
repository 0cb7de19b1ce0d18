"""Count the file-system calls of a command with strace, by folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STRACE = "strace"
CALL = re.compile(r'\d+ +(\w+)\((?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?(?:, )?)?(?:"((?:[^"\\]|\\.)*)")?(.*)')
SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/run", "/var")
"""Folders of each node's own system."""


@dataclass
class FileCalls:
    """Calls that take a file name, and ``fstat``, as in strace's class ``%file``; children are counted, too."""

    before: dict[str, int] = field(default_factory=dict)
    """By folder, before the first sample of the dataset is opened, which happens after ``run_start``."""
    after: dict[str, int] = field(default_factory=dict)
    """From there to the end."""

    def start(self, folders: Iterable[str] | None = None) -> int:
        """Calls before the first sample in ``folders``, by default in all folders."""
        return sum(number for name, number in self.before.items() if folders is None or name in folders)

    def as_dict(self) -> dict[str, object]:
        """Return the counts for a result file."""
        total = self.start()
        return {"start": total, "start_by_folder": self.before, "all": total + sum(self.after.values()),
                "after_start_by_folder": self.after}  # fmt: skip


def has_strace() -> bool:
    """Whether calls can be counted: strace is installed, and may trace a process."""
    if shutil.which(STRACE) is None:
        return False
    return subprocess.run([STRACE, "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


def traced(command: Sequence[str | Path], trace: Path) -> list[str]:
    """Return the command under strace, which writes to ``trace``."""
    return [STRACE, "-f", "-y", "-e", "trace=%file", "-o", str(trace), *map(str, command)]


def count(command: Sequence[str | Path], folders: Mapping[str, Sequence[Path]], *, samples: Path | None = None,
          cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> FileCalls:  # fmt: skip
    """Run a command and count its calls by the named ``folders``; see ``read_trace``.

    Raises ``CalledProcessError`` if the command fails.
    """
    with tempfile.TemporaryDirectory() as place:
        trace = Path(place) / "trace"
        subprocess.run(traced(command, trace), check=True, cwd=cwd, env=environ, stdout=subprocess.DEVNULL)
        return read_trace(trace, folders, samples)


def read_trace(trace: Path, folders: Mapping[str, Sequence[Path]], samples: Path | None = None) -> FileCalls:
    """Count the calls in a trace by folder. A parent of a named folder counts as that one; the first in order wins.

    The first opening of a file below ``samples`` ends the start.
    """
    named = [(name, str(path)) for name, paths in folders.items() for path in paths]
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    counter = before
    with trace.open(errors="replace") as lines:
        for line in lines:
            call = CALL.match(line)
            if call is None:
                continue
            name, folder, text, rest = call.groups()
            path = os.path.join(folder or "", text or "").rstrip("/")  # noqa: PTH118
            opens = name.startswith("open") and "O_DIRECTORY" not in rest
            if samples is not None and opens and path.startswith(f"{samples}/"):
                counter = after
            counter[place_of(path, named)] += 1
    return FileCalls(dict(before.most_common()), dict(after.most_common()))


def place_of(path: str, named: Sequence[tuple[str, str]]) -> str:
    """Return the named folder that holds ``path``, else ``system``, a named folder below ``path``, or ``other``."""
    for name, folder in named:
        if path == folder or path.startswith(f"{folder}/"):
            return name
    if path.startswith(SYSTEM):
        return "system"
    return next((name for name, folder in named if path and folder.startswith(f"{path}/")), "other")
