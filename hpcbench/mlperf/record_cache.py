"""Keeps the records of logs that have been read, in the user's cache folder, so that reading them again is fast.

A record is taken from there as long as the log and the system description beside it have the size and time of change
that they had, and the code that reads logs is the same. The cache may be removed at any time. Where it cannot be
written or read, logs are read as if there were none.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, fields
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpcbench.mlperf.find_logs import LogPlace
from hpcbench.mlperf.run_record import RunRecord

READERS = (
    "hpcbench.mlperf.log_phases",
    "hpcbench.mlperf.read_log",
    "hpcbench.mlperf.run_record",
    "hpcbench.mlperf.step_lines",
    "hpcbench.results.mllog_reader",
)
"""Modules on which a record depends; the cache is of one version of them."""
TABLE = "CREATE TABLE IF NOT EXISTS records (place TEXT PRIMARY KEY, version TEXT, stamp TEXT, record TEXT)"
SETTLED_S = 2.0
"""A log that changed so lately may change again within the resolution of its time; it is not kept."""
WAIT_S = 5.0
FIELDS = frozenset(each.name for each in fields(RunRecord))


def cache_file() -> Path:
    """Where the records of this user are kept: ``$XDG_CACHE_HOME/hpcbench/records.sqlite``, else in ``~/.cache``."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    above = Path(folder) if Path(folder).is_absolute() else Path.home() / ".cache"
    return above / "hpcbench" / "records.sqlite"


def version_of_readers() -> str:
    """Changes with the code that makes a record."""
    digest = sha256()
    for name in READERS:
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        digest.update(Path(found.origin).read_bytes())
    return digest.hexdigest()


def key_of(place: LogPlace) -> str:
    """What a record is found by: its log, and all that the place of the log says of it."""
    said = [place.origin, place.round, place.organization, place.system, place.application, place.mode, place.pruned]
    return json.dumps([str(place.path.absolute()), *said])


def stamp_of(place: LogPlace) -> str | None:
    """Size and time of the log and of its system description; none where they changed just now, or are gone."""
    found: list[tuple[int, int]] = []
    for path in (place.path, place.description):
        if path is None:
            continue
        try:
            status = path.stat()
        except OSError:
            return None
        if abs(time.time() - status.st_mtime) < SETTLED_S:
            return None
        found.append((status.st_size, status.st_mtime_ns))
    return json.dumps(found)


class RecordCache:
    """The records in ``file``. Never raises: what fails is as if nothing were kept."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._version = version_of_readers()

    def get(self, places: Sequence[LogPlace]) -> list[RunRecord | None]:
        """The record of each place, where it is kept and still that of the log."""
        kept: dict[str, tuple[str, str]] = {}
        with suppress(sqlite3.Error, OSError):
            if self.file.is_file():
                kept = self._read([key_of(place) for place in places])
        return [self._record(place, kept.get(key_of(place))) for place in places]

    def put(self, read: Iterable[tuple[LogPlace, RunRecord]]) -> None:
        """Keep these records; those of other versions of the code go."""
        rows = [(key_of(place), self._version, stamp, json.dumps(asdict(record)))
                for place, record in read if (stamp := stamp_of(place)) is not None]  # fmt: skip
        if not rows:
            return
        with suppress(sqlite3.Error, OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as database, database:
                database.execute(TABLE)
                database.execute("DELETE FROM records WHERE version != ?", (self._version,))
                database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=WAIT_S)

    def _read(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        wanted = "SELECT stamp, record FROM records WHERE place = ? AND version = ?"
        with closing(self._open()) as database:
            rows = {key: database.execute(wanted, (key, self._version)).fetchone() for key in keys}
        return {key: row for key, row in rows.items() if row is not None}

    def _record(self, place: LogPlace, kept: tuple[str, str] | None) -> RunRecord | None:
        if kept is None or kept[0] != stamp_of(place):
            return None
        try:
            values: dict[str, Any] = json.loads(kept[1])
        except ValueError:
            return None
        if not isinstance(values, dict) or set(values) != FIELDS:
            return None
        return RunRecord(**{**values, "path": str(place.path)})
