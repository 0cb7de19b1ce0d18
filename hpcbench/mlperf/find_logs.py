"""Find the logs of runs in files, run folders, and the trees of published rounds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from staging.errors import InputError

LOG = re.compile(r"result_\d+\.txt")
MODES = {"strong": "time to train", "weak": "throughput"}
OF_FIRST_ROUND = ("cosmoflow", "deepcam")
"""Applications of v0.7, which has no folder strong or weak to distinguish its tree from other ``results`` folders."""
PRUNED = "pruned_results"
OF_THE_SUITE = "benchmarks/*/implementations/hpcbench"
"""Below an organization: the code that ``hpcbench package`` writes beside the results of your own runs."""
IN_TREES = ("published", "submission")
"""Origins of the runs in the tree of an organization, whose folders are entries."""
ROUND = re.compile(r"v?(\d+\.\d+)|hpc_results_v(\d+\.\d+)(?:-[\w.]+)?")
"""A round's folder; an archive of its repository is called ``hpc_results_v1.0-main``."""


@dataclass(frozen=True)
class LogLocation:
    """A log, and what its path in the tree of a round says about it."""

    path: Path
    origin: str
    """``published``, ``submission``, ``own`` or ``log``; see ``RunRecord``."""
    round: str | None = None
    organization: str | None = None
    system: str | None = None
    application: str | None = None
    mode: str | None = None
    """``time to train`` or ``throughput``."""
    pruned: bool = False
    description: Path | None = None
    """The system description, if there is one."""


def find_runs(paths: Sequence[Path]) -> list[LogLocation]:
    """Find the runs below ``paths``, each once, ordered by path and then by name.

    Raises ``InputError`` for a path that does not exist or has no run below it.
    """
    locations: dict[Path, LogLocation] = {}
    packaged = cache(is_packaged)  # of thousands of logs, each organization is looked at once
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist; give run folders, logs, or folders of a round")
        # The folders above a log say what it is, which `..` within its path would hide.
        below = list(log_locations(path.resolve() if ".." in path.parts else path, packaged))
        if not below:
            raise InputError(f"{path} holds no run: no mllog.txt and no result_0.txt, result_1.txt, ... below it")
        for location in below:
            locations.setdefault(location.path.resolve(), location)
    return list(locations.values())


def is_packaged(organization: Path) -> bool:
    """Whether ``hpcbench package`` has written the tree of an organization, so that its results are your own."""
    return any(organization.glob(OF_THE_SUITE))


def log_locations(path: Path, packaged: Callable[[Path], bool] = is_packaged) -> Iterator[LogLocation]:
    """Yield the logs at ``path`` and below it; links to folders are not followed.

    Raises ``InputError`` for a folder that cannot be read, whose runs would be missing from every table.
    """
    if path.is_file():
        yield location_of(path, packaged)
        return
    for folder, folders, files in os.walk(path, onerror=refuse_unreadable):
        folders.sort()
        if "mllog.txt" in files and "config.yaml" in files:
            folders.clear()
            yield LogLocation(Path(folder) / "mllog.txt", "own")
            continue
        logs = (Path(folder) / name for name in sorted(files, key=by_number) if LOG.fullmatch(name))
        yield from (location_of(log, packaged) for log in logs)


def refuse_unreadable(error: OSError) -> None:
    """Raise ``InputError`` for a folder whose content cannot be listed."""
    raise InputError(f"{error.filename} cannot be read ({error.strerror}); make it readable, or give other paths")


def by_number(name: str) -> tuple[int, str]:
    """Sort key that puts ``result_2.txt`` before ``result_10.txt``."""
    digits = re.sub(r"\D", "", name)[:18]
    return (int(digits) if digits else 0, name)


def location_of(log: Path, packaged: Callable[[Path], bool] = is_packaged) -> LogLocation:
    """Classify a log by its path: ``ROUND/ORG/results/SYSTEM/{strong,weak}/APP[/pruned_results]/result_N.txt``.

    v0.7 has no folder strong or weak. A log anywhere else stands alone. ``packaged`` says of the folder ``ORG`` whether
    it is a submission of your own.
    """
    if log.name == "mllog.txt" and (log.parent / "config.yaml").is_file():
        return LogLocation(log, "own")
    parts = log.absolute().parts
    if "results" not in parts[:-3]:
        return LogLocation(log, "log")
    at = len(parts) - 1 - parts[::-1].index("results")
    inner = list(parts[at + 1 : -1])
    pruned = PRUNED in inner
    inner = [part for part in inner if part != PRUNED]
    if not (len(inner) == 3 and inner[1] in MODES) and not (len(inner) == 2 and inner[1] in OF_FIRST_ROUND):
        return LogLocation(log, "log")
    folder = Path(*parts[:at])
    description = folder / "systems" / f"{inner[0]}.json"
    above = parts[at - 2] if at >= 2 else ""
    return LogLocation(
        log, "submission" if packaged(folder) else "published", round=round_of(above), organization=parts[at - 1],
        system=inner[0], application=inner[-1], mode=MODES[inner[1]] if len(inner) == 3 else MODES["strong"],
        pruned=pruned, description=description if description.is_file() else None,
    )  # fmt: skip


def round_of(name: str) -> str | None:
    """The round that a folder is named after: ``v1.0``, ``1.0`` or ``hpc_results_v1.0``."""
    match = ROUND.fullmatch(name)
    return None if match is None else f"v{match[1] or match[2]}"
