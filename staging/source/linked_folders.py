"""Refuses links to folders that a walk of the source must not follow: they never end, or lead to the destination."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from staging.errors import DataError

Identity = tuple[int, int]
"""Device and inode of a folder."""


class LinkRules:
    """Which links to folders are refused if links are followed. Used by many threads."""

    def __init__(self, destinations: Iterable[Path] = ()) -> None:
        self._destinations = {Path(os.path.realpath(path)): path for path in destinations}
        self._above = {above: path for real, path in self._destinations.items() for above in real.parents}
        self._ways: dict[Path, set[Identity]] = {}
        """For folders with links, what is on the way to them: kept, since one folder may have many links."""

    def check(self, root: Path, name: bytes) -> None:
        """Raise ``DataError`` if the link ``name`` below ``root`` is to be refused."""
        path = root / os.fsdecode(name)
        target = Path(os.path.realpath(path))
        self._refuse_destination(path, target)
        if Path(os.path.realpath(path.parent)).is_relative_to(target):
            problem = f"is a link to {target}, a folder that it lies in"
            raise DataError(path, problem, "remove the link, or leave out --follow-links")
        if path.parent not in self._ways:
            self._ways[path.parent] = on_the_way(root, path.parent)
        if identity(target) in self._ways[path.parent]:
            problem = f"is a link to {target}, which has a link that leads back here"
            raise DataError(path, problem, "remove one of the links, or leave out --follow-links")

    def _refuse_destination(self, path: Path, target: Path) -> None:
        """Raise ``DataError`` for a link through which each staging would bring what the last one brought."""
        lies_in = next((above for above in (target, *target.parents) if above in self._destinations), None)
        if lies_in is not None:
            how, destination = "is" if lies_in == target else "lies within", self._destinations[lies_in]
        elif target in self._above:
            how, destination = "holds", self._above[target]
        else:
            return
        problem = f"is a link to {target}, which {how} the destination {destination}"
        raise DataError(path, problem, "remove the link, choose another destination, or leave out --follow-links")


def on_the_way(root: Path, folder: Path) -> set[Identity]:
    """The folders from ``root`` to ``folder``, which links may lead to, and all folders above these."""
    ways = [folder, *(above for above in folder.parents if above == root or above.is_relative_to(root))]
    real = {Path(os.path.realpath(way)) for way in ways}
    return {identity(around) for path in real for around in (path, *path.parents)}


def identity(folder: Path) -> Identity:
    """What tells a folder from all others, under any name."""
    status = folder.stat()
    return status.st_dev, status.st_ino
