"""Removes what a manifest owns, and nothing else."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from staging.atomic import is_temporary, sync_folder
from staging.bookkeeping import ARRIVING, BOOKKEEPING
from staging.errors import DataError
from staging.ledger.destination_lock import NAME as LOCK
from staging.ledger.destination_lock import lock
from staging.ledger.durable_batch import sync_filesystem
from staging.ledger.journal import NAME as JOURNAL
from staging.ledger.manifest import NAME as MANIFEST
from staging.ledger.manifest import has_manifest, is_inside, load_records, no_manifest
from staging.ledger.records import Records, is_as_landed
from staging.ranks.world import this_node
from staging.storage.destination_folder import DestinationFolder

Books = Literal["manifest", "probe", "lost"]
"""What bookkeeping has: a manifest; what comes before one, a lock and a probe; what comes behind one, without it."""
NAMES = (LOCK, MANIFEST, JOURNAL, ARRIVING)
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
    keeps_books: bool = False
    """Whether the bookkeeping stayed, too: the manifest is lost, and nothing says which of ``left`` are staged."""


def clean(destination: Path) -> Cleaned:
    """Remove the staged files below ``destination``, unfinished ones, empty folders, and the bookkeeping.

    Where only a probe was, there is no more than the bookkeeping. Where the manifest is lost, files stay, and the
    bookkeeping with them, so that they can be staged again; its header is not needed. Stays below ``destination``:
    names that lead out of it are not followed, nor are links. The bookkeeping goes last; killed in the midst of that,
    the same call goes on.
    Raises ``DataError`` where there is no manifest, where a staging is going on, and where a file can't be removed.
    """
    destination = Path(os.path.realpath(destination))  # a link may be made to lead elsewhere meanwhile
    records_of(destination)
    with lock(destination, this_node(), f"clean {secrets.token_hex(4)}"):
        cleaned, books = Cleaned(), find_books(destination)
        if books != "probe":
            _remove_staged(destination, records_of(destination), cleaned)
            cleaned.left.sort()
            cleaned.keeps_books = books == "lost" and bool(cleaned.left)
        if not cleaned.keeps_books:
            _remove_books(destination)
    return cleaned


def find_books(destination: Path) -> Books:
    """What the bookkeeping of ``destination`` knows. Raises ``DataError`` where it is none of staging's."""
    bookkeeping = destination / BOOKKEEPING
    if has_manifest(destination):
        return "manifest"
    try:
        if bookkeeping.is_symlink() or not bookkeeping.is_dir():
            raise no_manifest(destination)
        names = {path.name for path in bookkeeping.iterdir()}
    except OSError as error:
        raise DataError(bookkeeping, f"cannot be listed ({error.strerror})", "check its permissions") from None
    if not all(name in NAMES or name.startswith(PROBE) or is_temporary(name) for name in names):
        raise no_manifest(destination)
    # the disk has a manifest before there is a journal, and `clean` removes the journal before the manifest
    return "lost" if JOURNAL in names else "probe"


def records_of(destination: Path) -> Records:
    """What the manifest names, also without its header; nothing where there is none. Raises ``DataError``."""
    return load_records(destination, headed=False) if find_books(destination) == "manifest" else Records()


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


def _remove_books(destination: Path) -> None:
    bookkeeping = destination / BOOKKEEPING
    shutil.rmtree(bookkeeping / ARRIVING, ignore_errors=True)
    # or after a crash files might be back, and nothing that says whose they are
    sync_filesystem(destination)
    with refusals(bookkeeping):
        with suppress(FileNotFoundError, IsADirectoryError):
            (bookkeeping / JOURNAL).unlink()
        sync_folder(bookkeeping)
        shutil.rmtree(bookkeeping)


def _remove_staged(destination: Path, records: Records, cleaned: Cleaned) -> None:
    with DestinationFolder(destination) as folder:
        for file in records:
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
