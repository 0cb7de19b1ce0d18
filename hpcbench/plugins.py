"""Plug-ins: parts of other packages, found through entry points. Nothing is imported before it is asked for.

A group is the name of an entry-point group, such as ``hpcbench.optimizers``. ``docs/extending.md`` shows one of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from staging.errors import InputError

APPLICATIONS = "hpcbench.apps"
OPTIMIZERS = "hpcbench.optimizers"
SCHEDULERS = "hpcbench.schedulers"
MEASUREMENTS = "hpcbench.measurements"
FIGURES = "hpcbench.figures"
MACHINES = "hpcbench.machines"
THINGS: Mapping[str, str] = {
    APPLICATIONS: "application", OPTIMIZERS: "optimizer", SCHEDULERS: "scheduler", MEASUREMENTS: "measurement",
    FIGURES: "figure", MACHINES: "machine files",
}  # fmt: skip
"""The groups, and what an entry point of each names."""


def registered(group: str) -> list[EntryPoint]:
    """The entry points of a group, by name; one that two packages register alike is listed once."""
    return list(_all_entry_points(tuple(sys.path)).get(group, ()))


@lru_cache(maxsize=1)
def _all_entry_points(path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """The entry points of all groups, read once, since this opens a file of each package on ``sys.path``."""
    points_by_group: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    everything = entry_points()
    for group in THINGS:
        for point in everything.select(group=group):
            points_by_group.setdefault(group, {}).setdefault((point.name, point.value), point)
    return {group: [points[key] for key in sorted(points)] for group, points in points_by_group.items()}


def names(group: str) -> list[str]:
    """The registered names, sorted, each once."""
    return list(dict.fromkeys(point.name for point in registered(group)))


def find(group: str, name: str, built_in: Collection[str] = ()) -> EntryPoint | None:
    """The entry point called ``name``; ``None`` if there is none.

    Raises ``InputError`` if two packages register that name, or if it is one of ``built_in``.
    """
    points = [point for point in registered(group) if point.name == name]
    if points and name in built_in:
        raise InputError(
            f"{words(points[0])} has the name of one of hpcbench's own; rename the entry point, or uninstall its "
            "package"
        )
    if len(points) > 1:
        others = " and ".join(_origin(point) for point in points)
        raise InputError(f"{THINGS[group]} '{name}' is registered by {others}; rename one, or uninstall its package")
    return points[0] if points else None


def load(point: EntryPoint, kind: type | None = None) -> Any:
    """The object that an entry point names. Raises ``InputError`` if the import fails, or if it is not a ``kind``."""
    try:
        loaded = point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{words(point)} cannot be imported ({reason}); mend or uninstall its package") from error
    if kind is not None and not isinstance(loaded, kind):
        raise InputError(
            f"{words(point)} must be a {kind.__name__}, and is a {type(loaded).__name__}; mend or uninstall its package"
        )
    return loaded


def package_folder(point: EntryPoint) -> Path:
    """The folder of the package that an entry point names; neither it nor a package above it is imported.

    Raises ``InputError`` where there is none.
    """
    top, *below = point.value.split(".")
    try:
        # Of a name without dots this imports nothing, and of another all packages above it.
        spec = find_spec(top)
    except Exception as error:
        raise InputError(f"{words(point)} cannot be found ({error}); mend or uninstall its package") from error
    locations = [] if spec is None else spec.submodule_search_locations or []
    folders = [folder for location in locations if (folder := Path(location, *below)).is_dir()]
    if not folders:
        raise InputError(f"{words(point)} must name a package, a folder; mend or uninstall it")
    return folders[0]


def states(
    group: str, check: Callable[[str], object], wanted: Callable[[EntryPoint], bool]
) -> Iterator[tuple[str, str, str]]:
    """For each ``wanted`` entry point: its name, its origin, and what ``check`` says is wrong, else an empty text."""
    for point in filter(wanted, registered(group)):
        try:
            check(point.name)
        except InputError as error:
            yield point.name, _origin(point), str(error)
        else:
            yield point.name, _origin(point), ""


def words(point: EntryPoint) -> str:
    """What a plug-in is, its name and its origin, for messages."""
    return f"{THINGS[point.group]} '{point.name}' ({_origin(point)})"


def _origin(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.value} of {point.dist.name}"
