"""Read the runs of many logs and run folders, in several processes, and from the cache if already read."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from hpcbench.mlperf.find_logs import LogLocation
from hpcbench.mlperf.log_cache import LogCache, Reading
from hpcbench.mlperf.own_runs import read_own_run
from hpcbench.mlperf.read_log import LONGEST_TEXT, read_log, text
from hpcbench.mlperf.run_record import FEWEST_ALIKE, UNREAD, RunRecord
from staging.errors import DataError, InputError
from staging.one_line import one_line
from staging.progress import Progress

AT_ONCE = 16
FEWEST_FOR_PROCESSES = 200
"""Fewer logs than this are read before another process has started."""
FIELDS = frozenset(field.name for field in fields(RunRecord))


def read_runs(
    locations: Sequence[LogLocation], *, processes: int = 1, cache: LogCache | None = None, quiet: bool = True
) -> list[RunRecord]:
    """Return a record for each location; among several, an unreadable one has a record that says so.

    Raises ``InputError`` if no log can be read. ``processes`` is how many processes read if there are
    enough logs. Logs are read from and written to ``cache``; run folders, whose summary counts, too, are always read.
    """
    all_records = records_kept(locations, cache)
    left = [number for number, record in enumerate(all_records) if record is None]
    if len(locations) == 1 and left:
        return [read_location(locations[0])]
    read = [locations[number] for number in left]
    readings = {number: reading_of(locations[number]) for number in left} if cache is not None else {}
    stamps = {number: reading.stamp() for number, reading in readings.items()}
    with Progress(len(left), "reading", "logs", enabled=not quiet and len(left) >= FEWEST_FOR_PROCESSES) as progress:
        for number, record in zip(left, read_each(read, processes), strict=True):
            all_records[number] = record
            progress.advance(1)
    records = [record for record in all_records if record is not None]
    unread = [record.reason for record in records if record.reason and record.reason.startswith(UNREAD)]
    if records and len(unread) == len(records):
        raise InputError(f"none of {len(records)} logs can be read; the first: {unread[0].removeprefix(UNREAD)}")
    if cache is not None:
        cache.put((readings[number], stamps[number], values_of(records[number]))
                  for number in left if is_kept(locations[number], records[number]))  # fmt: skip
    note_alike(records)
    return records


def reading_of(location: LogLocation) -> Reading:
    """The reading of a log: its file, all that its path says about it, and the system description beside it."""
    said = (
        location.origin, location.round, location.organization, location.system, location.application,
        location.mode, location.pruned,
    )  # fmt: skip
    beside = () if location.description is None else (location.description,)
    return Reading(("record", str(location.path.absolute()), *said), (location.path, *beside))


def records_kept(locations: Sequence[LogLocation], cache: LogCache | None) -> list[RunRecord | None]:
    """The cached record of each log, with its present path; ``None`` if it is not cached."""
    if cache is None:
        return [None] * len(locations)
    cached_values = cache.get([reading_of(location) for location in locations])
    return [record_of(values, location) for values, location in zip(cached_values, locations, strict=True)]


def values_of(record: RunRecord) -> dict[str, Any]:
    """The values of a record as the cache keeps them; all are JSON's, and ``asdict`` would copy every one."""
    return {name: getattr(record, name) for name in FIELDS}


def record_of(values: Any, location: LogLocation) -> RunRecord | None:
    """Rebuild a record from its values in the cache."""
    if not isinstance(values, dict) or set(values) != FIELDS:
        return None
    return RunRecord(**{**values, "path": str(location.path)})


def is_kept(location: LogLocation, record: RunRecord) -> bool:
    """Whether a record belongs in the cache: not that of a run folder, nor of a log that could not be read."""
    return location.origin != "own" and record.start_unix_s is not None


def read_each(locations: Sequence[LogLocation], processes: int) -> Iterator[RunRecord]:
    """Read each run, in the given order."""
    if processes < 2 or len(locations) < FEWEST_FOR_PROCESSES:
        yield from map(read_run, locations)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(read_run, locations, chunksize=AT_ONCE)


def read_location(location: LogLocation) -> RunRecord:
    """Read the record of a run. Raises ``InputError`` if it cannot be read, whatever its log holds."""
    try:
        return read_own_run(location) if location.origin == "own" else read_log(location)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        why = one_line(f"{type(error).__name__}: {error}", LONGEST_TEXT)
        raise DataError(location.path, f"cannot be read ({why})", "leave it out") from error


def read_run(location: LogLocation) -> RunRecord:
    """Read the record of a run; if it cannot be read, return one with the reason."""
    try:
        return read_location(location)
    except InputError as error:
        return RunRecord(
            path=str(location.path), origin=location.origin, round=location.round,
            organization=text(location.organization), system=text(location.system),
            application=text(location.application), mode=location.mode, pruned=location.pruned,
            reason=f"{UNREAD}{error}",
        )  # fmt: skip


def note_alike(records: Sequence[RunRecord]) -> None:
    """Add a note to runs of one folder whose training was identical to the last digit."""
    first: dict[tuple[object, ...], RunRecord] = {}
    for record in records:
        if len(record.qualities) < FEWEST_ALIKE:
            continue
        key = (str(Path(record.path).parent), *record.qualities)
        other = first.setdefault(key, record)
        if other is not record:
            record.notes.append(f"evaluated exactly as {Path(other.path).name}: one trajectory")
