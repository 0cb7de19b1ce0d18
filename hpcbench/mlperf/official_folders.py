"""The official scores of many folders, read by several processes if there are many logs, and from the cache."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from hpcbench.mlperf.log_cache import LogCache, Reading
from hpcbench.mlperf.official_log import Convergence, OfficialLog, read_official_log
from hpcbench.mlperf.official_score import OfficialScore, log_files, official_score
from staging.cores import cores_allowed

FEWEST = 200
"""The fewest logs for which it is worth starting other processes."""
AT_ONCE = 16
FIELDS = frozenset(field.name for field in fields(OfficialLog))
Folder = tuple[OfficialScore, dict[str, OfficialLog]]
Asked = tuple[Path, str]
"""A log and its ruleset."""


def official_folders(rulesets: Mapping[Path, str], cache: LogCache | None = None) -> dict[Path, Folder]:
    """Return score and logs of each folder with logs, under its ruleset; ``cache`` is read and updated."""
    files = {folder: log_files(folder) for folder in rulesets}
    asked = [(path, rulesets[folder]) for folder, paths in files.items() for path in paths]
    read = dict(zip(asked, official_logs(asked, cache), strict=True))
    made: dict[Path, Folder] = {}
    for folder, paths in files.items():
        if paths:
            ruleset = rulesets[folder]
            logs = [read[path, ruleset] for path in paths]
            score = official_score(folder, logs, folder.parent.name == "weak", ruleset)
            made[folder] = score, {log.name: log for log in logs}
    return made


def official_logs(asked: Sequence[Asked], cache: LogCache | None) -> list[OfficialLog]:
    """Return each log as the official tools see it."""
    readings = [Reading(("official", str(path.absolute()), ruleset), (path,)) for path, ruleset in asked]
    cached_values = [None] * len(asked) if cache is None else cache.get(readings)
    all_logs = [kept_log(values, path.name) for values, (path, _) in zip(cached_values, asked, strict=True)]
    left = [number for number, log in enumerate(all_logs) if log is None]
    stamps = {number: readings[number].stamp() for number in left} if cache is not None else {}
    for number, log in zip(left, read_each([asked[number] for number in left]), strict=True):
        all_logs[number] = log
    logs = [log for log in all_logs if log is not None]
    if cache is not None:
        cache.put((readings[number], stamps[number], asdict(logs[number])) for number in left)
    return logs


def kept_log(values: Any, name: str) -> OfficialLog | None:
    """Rebuild a log from its values in the cache."""
    if not isinstance(values, dict) or set(values) != FIELDS:
        return None
    converged = values["convergence"]
    return OfficialLog(**{
        **values, "name": name, "convergence": None if converged is None else Convergence(**converged),
        "seeds": tuple(tuple(seed) for seed in values["seeds"]),
    })  # fmt: skip


def read_each(asked: Sequence[Asked]) -> Iterator[OfficialLog]:
    """Read each log, in the given order."""
    workers = len(cores_allowed())
    if len(asked) < FEWEST or workers < 2:
        yield from map(read_one, asked)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(read_one, asked, chunksize=AT_ONCE)


def read_one(asked: Asked) -> OfficialLog:
    """Read a log under its ruleset."""
    return read_official_log(*asked)
