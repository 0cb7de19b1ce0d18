"""Removes what a manifest owns, and nothing else."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from staging.atomic import is_temporary
from staging.errors import DataError
from staging.ledger.claim import NAME as LOCK
from staging.ledger.claim import lock
from staging.ledger.manifest import BOOKKEEPING, is_inside, load_records
from staging.ledger.records import has_size
from staging.ranks.world import this_node

PROBE = "probe."
"""What a probe writes into the bookkeeping begins so."""


@dataclass
class Cleaned:
    """What was removed and what was not."""

    files: int = 0
    """Files that the manifest named, and unfinished ones."""
    bytes: int = 0
    """Of these files."""
    left: list[str] = field(default_factory=list)
    """Names below the destination that stayed: of another size than the manifest's, or not in it."""


def clean(destination: Path) -> Cleaned:
    """Remove the staged files below ``destination``, unfinished ones, empty folders, and the bookkeeping.

    Where only a probe was, there is no more than the bookkeeping. Stays below ``destination``: names that lead out of
    it are not followed, nor are links. Raises ``DataError`` where there is no manifest, where a staging is going on,
    and where a file can't be removed.
    """
    if not is_probed_only(destination):
        load_records(destination)
    with lock(destination, this_node(), f"clean {secrets.token_hex(4)}"):
        cleaned = Cleaned()
        try:
            if not is_probed_only(destination):
                _remove_staged(destination, cleaned)
            shutil.rmtree(destination / BOOKKEEPING)
        except OSError as error:
            raise DataError(error.filename, f"cannot be removed ({error.strerror})", "check its permissions") from None
    cleaned.left.sort()
    return cleaned


def is_probed_only(destination: Path) -> bool:
    """Whether staging's books at ``destination`` hold nothing but what comes before a manifest: a lock, a probe."""
    bookkeeping = destination / BOOKKEEPING
    try:
        if bookkeeping.is_symlink() or not bookkeeping.is_dir():
            return False
        names = [path.name for path in bookkeeping.iterdir()]
    except OSError as error:
        raise DataError(bookkeeping, f"cannot be listed ({error.strerror})", "check its permissions") from None
    return all(name == LOCK or name.startswith(PROBE) or is_temporary(name) for name in names)


def remove_unfinished(destination: Path) -> int:
    """Remove the temporary files that killed stagings left below ``destination``; returns how many.

    For who holds the claim. Links are not followed, and the bookkeeping is not looked at.
    """
    removed = 0
    for where, folders, names in os.walk(destination):
        if where == str(destination):
            folders[:] = [name for name in folders if name != BOOKKEEPING]
        for name in names:
            path = Path(where) / name
            if is_temporary(name) and path.is_file() and not path.is_symlink():
                try:
                    path.unlink()
                except OSError as error:
                    raise DataError(path, f"cannot be removed ({error.strerror})", "check its permissions") from None
                removed += 1
    return removed


def _remove_staged(destination: Path, cleaned: Cleaned) -> None:
    for file in load_records(destination):
        path = destination / file.name
        if is_inside(destination, file.name) and has_size(path, file.size):
            _remove(path, file.size, cleaned)
    _sweep(destination, cleaned)


def _sweep(destination: Path, cleaned: Cleaned) -> None:
    """Remove unfinished files and empty folders; note the rest as left."""
    for where, folders, names in os.walk(destination, topdown=False):
        folder = Path(where)
        if folder.is_relative_to(destination / BOOKKEEPING):
            continue
        links = [name for name in folders if (folder / name).is_symlink()]
        for name in [*names, *links]:
            path = folder / name
            if is_temporary(name) and path.is_file() and not path.is_symlink():
                _remove(path, path.stat().st_size, cleaned)
            else:
                cleaned.left.append(str(path.relative_to(destination)))
        if folder != destination and not any(folder.iterdir()):
            folder.rmdir()


def _remove(path: Path, size: int, cleaned: Cleaned) -> None:
    path.unlink()
    cleaned.files += 1
    cleaned.bytes += size
