"""Removes what a manifest owns, and nothing else."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from staging.atomic import is_temporary, sync_descriptor
from staging.bookkeeping import ARRIVING, BOOKKEEPING
from staging.errors import DataError
from staging.ledger.destination_lock import NAME as LOCK
from staging.ledger.destination_lock import lock
from staging.ledger.durable_batch import sync_filesystem
from staging.ledger.journal import NAME as JOURNAL
from staging.ledger.journal import Journal
from staging.ledger.manifest import NAME as MANIFEST
from staging.ledger.manifest import has_manifest, is_inside, load_records, no_manifest
from staging.ledger.records import Records, is_as_landed
from staging.ranks.world import this_node
from staging.storage.destination_folder import DestinationFolder

Books = Literal["manifest", "probe", "lost"]
"""What bookkeeping has: a manifest; only what precedes one, a lock and a probe; or what follows one, without it."""
NAMES = (LOCK, MANIFEST, JOURNAL, ARRIVING)
ARRIVALS = f"{BOOKKEEPING}/{ARRIVING}"
PROBE = "probe."
"""Names that a probe writes into the bookkeeping begin like this."""


@dataclass
class Cleaned:
    """What was removed and what was not."""

    files: int = 0
    """Files that the manifest named, and unfinished ones."""
    bytes: int = 0
    """Bytes of these files."""
    left: list[str] = field(default_factory=list)
    """Names below the destination that stayed: of another size or time than the manifest's, or not in it."""
    keeps_books: Literal["", "lost", "unfinished"] = ""
    """Why the bookkeeping stayed, too, if it did: the manifest is lost, or does not have all that landed, since a
    staging did not finish; so nothing says which of ``left`` are staged."""


def clean(destination: Path) -> Cleaned:
    """Remove the staged files below ``destination``, unfinished ones, empty folders, and the bookkeeping.

    After a probe alone, there is nothing but the bookkeeping. If the manifest is lost, or lacks what landed last, files
    stay, and the bookkeeping with them, so that they can be staged again; the manifest's header is not needed. Stays
    below ``destination``: names that lead out of it are not followed, nor are links. The bookkeeping goes last; after a
    kill in the middle of that, the same call continues.
    Raises ``DataError`` if there is no manifest, if a staging is in progress, and if a file can't be removed.
    """
    destination = Path(os.path.realpath(destination))  # somebody may redirect a link meanwhile
    records_of(destination)
    held = lock(destination, this_node(), f"clean {secrets.token_hex(4)}")
    with held, DestinationFolder(destination) as folder:
        cleaned, books, records = Cleaned(), find_books(destination), records_of(destination)
        held.refuse_other(folder)
        unnamed = books != "probe" and _remove_staged(folder, records, cleaned)
        if cleaned.left and books == "lost":
            cleaned.keeps_books = "lost"
        elif unnamed and not _is_done(destination):
            cleaned.keeps_books = "unfinished"
        else:
            _remove_books(folder, cleaned)
    return cleaned


def find_books(destination: Path) -> Books:
    """What the bookkeeping of ``destination`` has. Raises ``DataError`` if it is not staging's."""
    bookkeeping = destination / BOOKKEEPING
    if has_manifest(destination):
        return "manifest"
    try:
        if bookkeeping.is_symlink() or not bookkeeping.is_dir():
            raise no_manifest(destination)
        names = {path.name for path in bookkeeping.iterdir()}
    except OSError as error:
        raise DataError(bookkeeping, f"cannot be listed ({error.strerror})", "check its permissions") from None
    if not all(map(is_book, names)):
        raise no_manifest(destination)
    # the disk has a manifest before there is a journal, and `clean` removes the journal before the manifest
    return "lost" if JOURNAL in names else "probe"


def is_book(name: str) -> bool:
    """Whether staging writes something of this name into the bookkeeping."""
    return name in NAMES or name.startswith(PROBE) or is_temporary(name)


def records_of(destination: Path) -> Records:
    """What the manifest names, even without its header; nothing if there is no manifest. Raises ``DataError``."""
    return load_records(destination, headed=False) if find_books(destination) == "manifest" else Records()


def remove_unfinished(destination: Path) -> int:
    """Remove the temporary files of killed stagings below ``destination``, and what a killed re-shuffle brought.

    Returns how many were removed, the folder of a re-shuffle's arrivals as one. The caller must hold the destination's
    lock. Links are not followed, and the rest of the bookkeeping is not looked at.
    """
    removed = 0
    with DestinationFolder(destination) as folder:
        for where, name, descriptor in unfinished(folder):
            with refusals(destination / where / name):
                os.unlink(name, dir_fd=descriptor)
            removed += 1
        if folder.status(ARRIVALS) is not None:
            with refusals(destination / ARRIVALS):
                folder.remove(ARRIVALS)
            removed += 1
    return removed


def room_of_unfinished(destination: Path) -> tuple[int, int]:
    """Bytes and files that ``remove_unfinished`` gives back; none unless the last staging did not finish."""
    sizes = list[int]()
    if not Journal(destination).is_done():
        with DestinationFolder(destination) as folder:
            sizes += (bytes_on_disk(descriptor, name) for _, name, descriptor in unfinished(folder))
            with suppress(FileNotFoundError), folder.below(ARRIVALS) as arrivals:
                for _, _, names, descriptor in arrivals.walk():
                    sizes += (bytes_on_disk(descriptor, name) for name in names)
    return sum(sizes), len(sizes)


def bytes_on_disk(folder: int, name: str) -> int:
    """Bytes of the blocks of a file in an open folder; none if it is gone."""
    with suppress(FileNotFoundError):
        return 512 * os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks
    return 0


def unfinished(folder: DestinationFolder) -> Iterator[tuple[str, str, int]]:
    """The temporary files of stagings: the folder of each, its name, and the descriptor of the folder, open now."""
    for where, folders, names, descriptor in folder.walk():
        if not where:
            folders[:] = [name for name in folders if name != BOOKKEEPING]
        for name in names:
            if is_temporary(name) and is_file(descriptor, name):
                yield where, name, descriptor


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Raise ``DataError`` with the path if the system refuses to remove it."""
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


def _is_done(destination: Path) -> bool:
    """Whether the last staging finished, as far as the journal can be read."""
    try:
        return Journal(destination).is_done()
    except DataError:
        return True


def _remove_books(destination: DestinationFolder, cleaned: Cleaned) -> None:
    """Remove what staging wrote into the bookkeeping, the lock last, after which the next staging can begin."""
    path = destination / BOOKKEEPING
    with refusals(path), destination.below(BOOKKEEPING) as books, books.reach("") as descriptor:
        # otherwise files might be back after a crash, and nothing would say whose they are
        sync_filesystem(destination.path, destination.held(""))
        books.remove(JOURNAL)
        sync_descriptor(descriptor)
        names = sorted(os.listdir(descriptor))  # noqa: PTH208  # of an open folder
        cleaned.left += [f"{BOOKKEEPING}/{name}" for name in names if not is_book(name)]
        for name in names:
            if is_book(name) and name != LOCK:
                books.remove(name)
        books.remove(LOCK)
    with destination.reach("") as descriptor, refusals(path):
        _remove_empty(descriptor, BOOKKEEPING)  # unless it holds something not ours, or the lock of the next staging


def _remove_staged(folder: DestinationFolder, records: Records, cleaned: Cleaned) -> bool:
    """Remove what the manifest names and what is unfinished; returns whether files stay that it lacks or doubts."""
    with refusals(folder / BOOKKEEPING), folder.below(BOOKKEEPING) as books:
        books.remove(ARRIVING)
    for file in records:
        if is_inside(folder.path, file.name) and is_as_landed(folder.status(file.name), file.size, file.landed_ns):
            with refusals(folder / file.name):
                folder.unlink(file.name)
            cleaned.files += 1
            cleaned.bytes += file.size
    return _sweep(folder, records, cleaned)


def _sweep(destination: DestinationFolder, records: Records, cleaned: Cleaned) -> bool:
    """Remove unfinished files and empty folders; note the rest as left."""
    unnamed = False
    for where, folders, names, descriptor in destination.walk(topdown=False):
        if where.partition("/")[0] == BOOKKEEPING:
            continue
        for name in names:
            if is_temporary(name) and is_file(descriptor, name):
                cleaned.bytes += os.stat(name, dir_fd=descriptor).st_size
                cleaned.files += 1
                with refusals(destination / where / name):
                    os.unlink(name, dir_fd=descriptor)
            else:
                left = f"{where}/{name}" if where else name
                as_named = left in records and not records.is_doubted(left)
                unnamed |= not as_named and is_file(descriptor, name)
                cleaned.left.append(left)
        for name in folders:  # these have been visited
            if where or name != BOOKKEEPING:
                with refusals(destination / where / name):
                    _remove_empty(descriptor, name)
    cleaned.left.sort()
    return unnamed


def _remove_empty(above: int, name: str) -> None:
    """Remove a folder unless something is in it."""
    try:
        os.rmdir(name, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
