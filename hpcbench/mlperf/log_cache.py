"""Cache what has been read from logs, in the user's cache folder, so that reading them again is fast.

A cached value is valid as long as the log, and the files that were read with it, have the same size and modification
time, and the code that reads them is the same. The cache may be removed at any time. If it cannot be written or read,
logs are read as if there were no cache.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

READERS = (
    "hpcbench.measure.log_rules",
    "hpcbench.mlperf.convergence_check",
    "hpcbench.mlperf.log_phases",
    "hpcbench.mlperf.official_checker",
    "hpcbench.mlperf.official_log",
    "hpcbench.mlperf.reached_target",
    "hpcbench.mlperf.read_log",
    "hpcbench.mlperf.run_record",
    "hpcbench.mlperf.step_lines",
    "hpcbench.results.mllog_reader",
)
"""Modules on which cached values depend; the cache holds one version of them, and of the official checker."""
TABLE = "CREATE TABLE IF NOT EXISTS logs (key TEXT PRIMARY KEY, version TEXT, stamp TEXT, value TEXT)"
SETTLED_S = 2.0
"""A log that changed this recently may change again within the resolution of its time; it is not cached."""
WAIT_S = 5.0


def cache_file() -> Path:
    """The path of the user's cache: ``$XDG_CACHE_HOME/hpcbench/logs.sqlite``, else in ``~/.cache``.

    For a user without a home, a path that cannot be written, so that nothing is cached.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not folder.is_absolute():
        try:
            folder = Path.home() / ".cache"
        except RuntimeError:  # neither $HOME nor an entry in passwd, as for some users in containers
            folder = Path(os.devnull)
    return folder / "hpcbench" / "logs.sqlite"


def version_of_readers() -> str:
    """Return a hash that changes with the code that reads logs."""
    digest = sha256()
    for name in READERS:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        digest.update(Path(spec.origin).read_bytes())
    with suppress(PackageNotFoundError):
        digest.update(version("mlperf-logging").encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Reading:
    """What is read from a log: the name under which it is cached, and the files that it depends on."""

    name: tuple[str | bool | None, ...]
    files: tuple[Path, ...]

    @property
    def key(self) -> str:
        """The name as text."""
        return json.dumps(self.name)

    def stamp(self) -> str | None:
        """Size and modification time of each file; ``None`` if one changed just now or is gone."""
        stamps: list[tuple[int, int]] = []
        for path in self.files:
            try:
                status = path.stat()
            except OSError:
                return None
            if abs(time.time() - status.st_mtime) < SETTLED_S:
                return None
            stamps.append((status.st_size, status.st_mtime_ns))
        return json.dumps(stamps)


class LogCache:
    """JSON values in ``file``. Never raises: a failure is treated as if nothing were cached."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def version(self) -> str:
        """The version of the code that reads logs."""
        return version_of_readers()

    def get(self, readings: Sequence[Reading]) -> list[Any | None]:
        """Return the cached value of each reading; ``None`` if there is none or its files have changed."""
        rows: dict[str, tuple[str, str]] = {}
        with suppress(sqlite3.Error, OSError):
            if self.file.is_file():
                rows = self._read([reading.key for reading in readings])
        return [value_of(reading, rows.get(reading.key)) for reading in readings]

    def put(self, read: Iterable[tuple[Reading, str | None, Any]]) -> None:
        """Cache values with the stamps that their files had before they were read, but none whose stamp is another now.

        Deletes values that other versions of the code have left.
        """
        rows = [(reading.key, self.version, stamp, json.dumps(value))
                for reading, stamp, value in read if stamp is not None and stamp == reading.stamp()]  # fmt: skip
        if not rows:
            return
        with suppress(sqlite3.Error, OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as database, database:
                database.execute(TABLE)
                database.execute("DELETE FROM logs WHERE version != ?", (self.version,))
                database.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=WAIT_S)

    def _read(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        wanted = "SELECT stamp, value FROM logs WHERE key = ? AND version = ?"
        with closing(self._open()) as database:
            rows = {key: database.execute(wanted, (key, self.version)).fetchone() for key in keys}
        return {key: row for key, row in rows.items() if row is not None}


def value_of(reading: Reading, row: tuple[str, str] | None) -> Any | None:
    """Return the cached value, unless the files have changed since."""
    if row is None or row[0] != reading.stamp():
        return None
    with suppress(ValueError):
        return json.loads(row[1])
    return None
