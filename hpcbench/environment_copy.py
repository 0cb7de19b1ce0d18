"""A copy of the Python environment on each node's own storage, read once in the job and sent by the staging layer.

A virtual environment comes with the standard library that it was made from, unless that is the system's, which each
node has. The interpreter itself, a single file, stays where it is. Whatever ``bin/python`` of the copy runs finds all
modules on the node; so do its worker processes.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hpcbench
from staging.errors import InputError

if TYPE_CHECKING:
    from staging.ranks.abort import AbortWatcher
    from staging.ranks.world import World
    from staging.report import StagingReport

SYSTEM = Path("/usr")
"""A Python below this folder comes with the system of each node."""
ENVIRONMENT, BASE = "environment", "base"
"""Folders of the copy."""


@dataclass(frozen=True)
class Part:
    """A folder to copy."""

    source: Path
    under: str
    """Name of the folder that it becomes in the copy."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    """Patterns of names, as in staging."""


@dataclass(frozen=True)
class Extras:
    """The properties of a folder that staging does not keep."""

    executables: tuple[str, ...]
    """Names of files that may be run."""
    links: tuple[tuple[str, str], ...]
    """Names of links to folders, and where they lead."""


def parts_of(prefix: Path, base: Path, version: str, *, sees_base: bool = False) -> list[Part]:
    """The parts of the environment ``prefix``, made from the Python in ``base``; ``version`` such as ``3.11``.

    ``sees_base``: the environment has the packages of ``base``, too. Raises ``InputError`` for the system's own Python.
    """
    if prefix == base:
        if base.is_relative_to(SYSTEM):
            raise InputError(
                f"the Python in {base} is the system's own, which every node has; make an environment for hpcbench "
                "(python -m venv), or leave out --bring-environment"
            )
        return [Part(prefix, ENVIRONMENT)]
    parts = [Part(prefix, ENVIRONMENT, exclude=("bin/*", "pyvenv.cfg"))]
    if not base.is_relative_to(SYSTEM):
        library = f"lib/python{version}"
        left = (f"{library}/test/*", "*.a", *(() if sees_base else (f"{library}/site-packages/*",)))
        parts.append(Part(base, BASE, (f"{library}/*", "include/*"), left))
    return parts


def own_parts() -> list[Part]:
    """The parts of this Python. Raises ``InputError`` for the system's, and for one that lacks hpcbench."""
    prefix = Path(sys.prefix)
    package = Path(hpcbench.__file__).resolve().parent
    if not package.is_relative_to(prefix.resolve()):
        raise InputError(
            f"hpcbench is in {package}, outside of the environment {prefix}, so that nodes would not have it; install "
            "it there with pip install, without -e, or leave out --bring-environment"
        )
    sees_base = any(Path(entry).is_relative_to(sys.base_prefix) and "-packages" in entry for entry in sys.path)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return parts_of(prefix, Path(sys.base_prefix), version, sees_base=sees_base)


def bring_environment(destination: str, world: World, watcher: AbortWatcher) -> list[StagingReport]:
    """Copy this Python to ``destination`` on each node; collective. Returns a report for each part.

    Raises ``InputError`` and ``DataError`` as ``staging.stage`` does.
    """
    from staging.options import StageOptions
    from staging.ranks.collective_errors import together
    from staging.stage import stage
    from staging.storage.destination import expand

    reports = []
    place = world.place
    folder = together(world, lambda: expand(destination, place.node_name, place.rank, os.environ))
    parts = together(world, own_parts)
    for part in parts:
        options = StageOptions(
            source=part.source, destination=str(folder / part.under), include=part.include, exclude=part.exclude,
            path="exchange" if place.nodes > 1 else "direct",
        )  # fmt: skip
        reports.append(stage(options, world, quiet=True, watcher=watcher))
        extras = world.broadcast(look_for_extras(part.source) if place.rank == 0 else None)
        assert extras is not None
        if place.local_rank == 0:
            add_extras(folder / part.under, extras)
    if place.local_rank == 0 and sys.prefix != sys.base_prefix:
        make_runnable(folder, Path(sys._base_executable), has_base=len(parts) > 1)  # type: ignore[attr-defined]
    world.barrier()
    return reports


def look_for_extras(source: Path) -> Extras:
    """Executable files and links to folders below ``source``, except hidden ones, which are not staged."""
    executables, links = [], []
    for entry in entries(source):
        name = os.path.relpath(entry.path, source)
        if entry.is_symlink() and entry.is_dir():
            links.append((name, os.readlink(entry.path)))  # noqa: PTH115
        elif entry.is_file() and entry.stat().st_mode & stat.S_IXUSR:
            executables.append(name)
    return Extras(tuple(executables), tuple(links))


def entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Files and links below ``folder``, except hidden ones."""
    with os.scandir(folder) as listing:
        for entry in listing:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from entries(entry.path)
            else:
                yield entry


def add_extras(folder: Path, extras: Extras) -> None:
    """Make the executables in ``folder`` executable again, and create its links to folders."""
    for name in extras.executables:
        file = folder / name
        if file.exists():
            file.chmod(file.stat().st_mode | 0o111)
    for name, target in extras.links:
        link = folder / name
        if link.parent.is_dir() and not link.is_symlink():
            link.symlink_to(target)


def make_runnable(folder: Path, interpreter: Path, *, has_base: bool) -> None:
    """Give the copy of a virtual environment its ``bin/python``, and say where its standard library is."""
    environment, home = folder / ENVIRONMENT, interpreter.parent
    if has_base:
        home = folder / BASE / "bin"
        home.mkdir(exist_ok=True)
        link(home / interpreter.name, interpreter)
    (environment / "bin").mkdir(exist_ok=True)
    link(environment / "bin" / "python", interpreter)
    (environment / "pyvenv.cfg").write_text(f"home = {home}\n", encoding="utf-8")


def link(path: Path, target: Path) -> None:
    """Make a symbolic link that replaces what an earlier copy left."""
    path.unlink(missing_ok=True)
    path.symlink_to(target)
