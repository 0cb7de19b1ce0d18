"""Removes what a manifest owns, and nothing else."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from staging.atomic import is_temporary
from staging.bookkeeping import ARRIVING, BOOKKEEPING
from staging.errors import DataError
from staging.ledger.destination_lock import NAME as LOCK
from staging.ledger.destination_lock import lock
from staging.ledger.durable_batch import sync_filesystem
from staging.ledger.journal import NAME as JOURNAL
from staging.ledger.manifest import NAME as MANIFEST
from staging.ledger.manifest import has_manifest, is_inside, load_records
from staging.ledger.records import is_as_landed
from staging.ranks.world import this_node
from staging.storage.destination_folder import DestinationFolder

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
    """Names below the destination that stayed: of another size or time than the manifest's, or not in it."""


def clean(destination: Path) -> Cleaned:
    """Remove the staged files below ``destination``, unfinished ones, empty folders, and the bookkeeping.

    Where only a probe was, there is no more than the bookkeeping. Stays below ``destination``: names that lead out of
    it are not followed, nor are links. The manifest need not have its header. The bookkeeping goes last; killed in the
    midst of that, the same call goes on.
    Raises ``DataError`` where there is no manifest, where a staging is going on, and where a file can't be removed.
    """
    if not is_probed_only(destination):
        load_records(destination, headed=False)
    with lock(destination, this_node(), f"clean {secrets.token_hex(4)}"):
        cleaned = Cleaned()
        if not is_probed_only(destination):
            _remove_staged(destination, cleaned)
            shutil.rmtree(destination / BOOKKEEPING / ARRIVING, ignore_errors=True)
            # or after a crash files might be back, and nothing that says whose they are
            sync_filesystem(destination)
        with refusals(destination / BOOKKEEPING):
            shutil.rmtree(destination / BOOKKEEPING)
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
    if MANIFEST in names and has_manifest(destination):
        return False
    before = (LOCK, MANIFEST, JOURNAL)
    return all(name in before or name.startswith(PROBE) or is_temporary(name) for name in names)


def remove_unfinished(destination: Path) -> int:
    """Remove the temporary files that killed stagings left below ``destination``; returns how many.

    For who holds the claim. Links are not followed, and the bookkeeping is not looked at.
    """
    removed = 0
    with DestinationFolder(destination) as folder:
        for where, folders, names, descriptor in folder.walk():
            if not where:
                folders[:] = [name for name in folders if name != BOOKKEEPING]
            for name in names:
                if is_temporary(name) and is_file(descriptor, name):
                    with refusals(destination / where / name):
                        os.unlink(name, dir_fd=descriptor)
                    removed += 1
    return removed


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Raise ``DataError`` with the path where the system refuses to remove it."""
    try:
        yield
    except OSError as error:
        raise DataError(path, f"cannot be removed ({error.strerror})", "check its permissions") from None


def is_file(folder: int, name: str) -> bool:
    """Whether a name in an open folder is a file, and no link."""
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _remove_staged(destination: Path, cleaned: Cleaned) -> None:
    with DestinationFolder(destination) as folder:
        for file in load_records(destination, headed=False):
            if is_inside(destination, file.name) and is_as_landed(folder.status(file.name), file.size, file.landed_ns):
                with refusals(destination / file.name):
                    folder.unlink(file.name)
                cleaned.files += 1
                cleaned.bytes += file.size
        _sweep(folder, cleaned)


def _sweep(destination: DestinationFolder, cleaned: Cleaned) -> None:
    """Remove unfinished files and empty folders; note the rest as left."""
    for where, folders, names, descriptor in destination.walk(topdown=False):
        if where.partition("/")[0] == BOOKKEEPING:
            continue
        # Folders below have been seen: those that were empty are gone.
        links = [name for name in folders if _is_link(descriptor, name)]
        for name in [*names, *links]:
            if is_temporary(name) and is_file(descriptor, name):
                cleaned.bytes += os.stat(name, dir_fd=descriptor).st_size
                cleaned.files += 1
                with refusals(destination / where / name):
                    os.unlink(name, dir_fd=descriptor)
            else:
                cleaned.left.append(f"{where}/{name}" if where else name)
        if where and not os.listdir(descriptor):  # noqa: PTH208  # of an open folder
            above, _, base = where.rpartition("/")
            with destination.reach(above) as folder, refusals(destination / where):
                os.rmdir(base, dir_fd=folder)


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
