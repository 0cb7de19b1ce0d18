"""Read the runs of many logs and run folders, in several processes, and from the cache if already read."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from hpcbench.mlperf.find_logs import LogPlace
from hpcbench.mlperf.log_cache import LogCache, Reading
from hpcbench.mlperf.own_runs import read_own_run
from hpcbench.mlperf.read_log import read_log
from hpcbench.mlperf.run_record import FEWEST_ALIKE, RunRecord
from staging.errors import InputError
from staging.progress import Progress

AT_ONCE = 16
FEWEST_FOR_PROCESSES = 200
"""Fewer logs than this are read before another process has started."""
FIELDS = frozenset(field.name for field in fields(RunRecord))


def read_runs(
    places: Sequence[LogPlace], *, processes: int = 1, cache: LogCache | None = None, quiet: bool = True
) -> list[RunRecord]:
    """Return a record for each place; among several, an unreadable one has a record that says so.

    Raises ``InputError`` if the only place cannot be read. ``processes`` is how many processes read if there are
    enough logs. Logs are read from and written to ``cache``; run folders, whose summary counts, too, are always read.
    """
    all_records = records_kept(places, cache)
    left = [number for number, record in enumerate(all_records) if record is None]
    if len(places) == 1 and left:
        return [read_place(places[0])]
    read = [places[number] for number in left]
    with Progress(len(left), "reading", "logs", enabled=not quiet and len(left) >= FEWEST_FOR_PROCESSES) as progress:
        for number, record in zip(left, read_each(read, processes), strict=True):
            all_records[number] = record
            progress.advance(1)
    records = [record for record in all_records if record is not None]
    if cache is not None:
        cache.put((reading_of(places[number]), asdict(records[number]))
                  for number in left if is_kept(places[number], records[number]))  # fmt: skip
    note_alike(records)
    return records


def reading_of(place: LogPlace) -> Reading:
    """The reading of a log: its file, all that its place says about it, and the system description beside it."""
    said = (place.origin, place.round, place.organization, place.system, place.application, place.mode, place.pruned)
    beside = () if place.description is None else (place.description,)
    return Reading(("record", str(place.path.absolute()), *said), (place.path, *beside))


def records_kept(places: Sequence[LogPlace], cache: LogCache | None) -> list[RunRecord | None]:
    """The cached record of each place, with its present path; ``None`` if it is not cached."""
    if cache is None:
        return [None] * len(places)
    cached_values = cache.get([reading_of(place) for place in places])
    return [record_of(values, place) for values, place in zip(cached_values, places, strict=True)]


def record_of(values: Any, place: LogPlace) -> RunRecord | None:
    """Rebuild a record from its values in the cache."""
    if not isinstance(values, dict) or set(values) != FIELDS:
        return None
    return RunRecord(**{**values, "path": str(place.path)})


def is_kept(place: LogPlace, record: RunRecord) -> bool:
    """Whether a record belongs in the cache: not that of a run folder, nor of a log that could not be read."""
    return place.origin != "own" and record.start_unix_s is not None


def read_each(places: Sequence[LogPlace], processes: int) -> Iterator[RunRecord]:
    """Read each run, in the given order."""
    if processes < 2 or len(places) < FEWEST_FOR_PROCESSES:
        yield from map(read_run, places)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(read_run, places, chunksize=AT_ONCE)


def read_place(place: LogPlace) -> RunRecord:
    """Read the record of a run. Raises ``InputError`` if it cannot be read."""
    return read_own_run(place) if place.origin == "own" else read_log(place)


def read_run(place: LogPlace) -> RunRecord:
    """Read the record of a run; if it cannot be read, return one with the reason."""
    try:
        return read_place(place)
    except InputError as error:
        return RunRecord(
            path=str(place.path), origin=place.origin, round=place.round, organization=place.organization,
            system=place.system, application=place.application, mode=place.mode, pruned=place.pruned,
            reason=f"cannot be read: {error}",
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
