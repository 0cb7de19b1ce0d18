"""Lists a tree of files on all ranks together, since a metadata server answers one thread slowly."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from staging.atomic import is_temporary
from staging.bookkeeping import BOOKKEEPING
from staging.errors import DataError
from staging.ranks.collective_errors import together
from staging.ranks.world import World
from staging.source.index import is_index
from staging.source.linked_folders import LinkRules
from staging.source.listing import INDEX_NAME, UNKNOWN, Listing, Names, Selection, refuse_bytes, refuse_time
from staging.source.retry import retrying
from staging.threads.adaptive_pool import map_in_threads

THREADS = 8
"""The most threads of each rank, if they wait for the metadata server."""
BLOCK = 256
"""Files that a thread looks at in one go."""
RETRIES = 3
INDEX = INDEX_NAME.encode()
BOOKS = BOOKKEEPING.encode()
FOLDER = -1
"""The size of a name that is a link to a folder."""


@dataclass(frozen=True)
class Walked:
    """A listing, the same on all ranks, and what it took."""

    listing: Listing
    metadata_operations: int
    """Folders opened and files looked at by this rank."""
    linked_folders: int = 0
    """Symbolic links to folders in the whole tree that the patterns matched and that were not followed."""
    hidden: int = 0
    """Names in the whole tree that begin with a dot and were left out."""
    books: int = 0
    """Folders of staging's own bookkeeping in the whole tree, except that of the root."""

    @property
    def skipped(self) -> str:
        """A message on what was left out that no pattern excludes; empty if nothing was."""
        counts = [
            (self.linked_folders, "link to a folder", "links to folders"), (self.hidden, "hidden name", "hidden names"),
            (self.books, "folder of bookkeeping", "folders of bookkeeping"),
        ]  # fmt: skip
        parts = [f"{count:,} {one if count == 1 else several}" for count, one, several in counts if count]
        return f"skipped: {', '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class Kinds:
    """Which names of a tree are listed besides plain ones."""

    follow_links: bool = False
    """Treat links to folders as folders."""
    hidden: bool = False
    """List names that begin with a dot, except staging's own bookkeeping and unfinished files."""
    links: LinkRules = field(default_factory=LinkRules)
    """Which links to folders are refused."""


@dataclass(frozen=True)
class _Folder:
    """What one folder holds, as names below the root."""

    folders: list[bytes]
    files: list[bytes]
    links: int
    hidden: int
    books: int


@dataclass(frozen=True)
class _Found:
    """What one rank found."""

    names: list[bytes]
    links: int
    """How many of them are links."""
    hidden: int
    """Names that were left out."""
    books: int
    """Folders of bookkeeping that were left out."""
    opened: int
    """Folders that were opened."""


PLAIN = Kinds()


def list_tree(
    root: Path, world: World, include: Sequence[str] = (), exclude: Sequence[str] = (), first: int | None = None,
    kinds: Kinds = PLAIN,
) -> Walked:  # fmt: skip
    """List and look at the files below ``root``, each rank a part of them; collective.

    Links to files are followed. Links to folders, and names that begin with a dot, are taken if ``kinds`` says so, and
    otherwise counted, as folders of bookkeeping always are. Unfinished files, and an index
    that is called ``dataset.index`` in the root, are left out. Patterns are those of ``Selection``.

    Raises ``DataError`` on all ranks for a folder or a file that can't be read, a dangling link, a link that must not
    be followed, a special file, and a tree without any wanted file.
    """
    selection = Selection(tuple(include), tuple(exclude), first)
    part = _find(root, world, selection, kinds)
    names = sorted(_exchanged(part.names, world))
    all_links, hidden, books = map(sum, zip(*world.all_gather((part.links, part.hidden, part.books)), strict=True))
    if first is not None:  # a link may turn out to lead to a folder, and is then no file
        names = names[: first + all_links]
    rank, size = world.place.rank, world.place.size
    share = names[len(names) * rank // size : len(names) * (rank + 1) // size]
    looked = together(world, partial(_look_at_all, root, share))
    columns = np.concatenate(world.all_gather(looked))
    listing = Listing(Names.packed(names), columns[:, 0], columns[:, 1], np.full(len(names), UNKNOWN, np.int64))
    files = np.flatnonzero(columns[:, 0] != FOLDER)
    linked_folders = len(names) - len(files)
    if linked_folders:
        listing = listing.take(files)
    listing = selection.cut(listing, root)
    refuse_bytes(root, listing.sizes)
    return Walked(listing, part.opened + len(share), linked_folders, hidden, books)


def list_names(root: Path, world: World, names: Sequence[str]) -> Walked:
    """Look at the files ``names`` below ``root``, the same on all ranks; each rank takes a part. Collective.

    A name that is there several times is one entry. Raises ``DataError`` on all ranks for a name that is not a file.
    """
    encoded = sorted({os.fsencode(name) for name in names})
    rank, size = world.place.rank, world.place.size
    share = encoded[len(encoded) * rank // size : len(encoded) * (rank + 1) // size]
    columns = np.concatenate(world.all_gather(together(world, partial(_look_at_all, root, share))))
    listing = Listing(Names.packed(encoded), columns[:, 0], columns[:, 1], np.full(len(encoded), UNKNOWN, np.int64))
    refuse_bytes(root, listing.sizes)
    return Walked(listing, len(share), int(np.count_nonzero(columns[:, 0] == FOLDER)))


def _find(root: Path, world: World, selection: Selection, kinds: Kinds) -> _Found:
    """Open all folders level by level, and share out each level again, so that no rank gets a deep branch alone."""
    place = world.place
    level: list[bytes] = [b""]
    names: list[bytes] = []
    links = hidden = books = opened = 0
    while level:
        own_folders = level[place.rank :: place.size]
        folders = together(world, partial(_open_all, root, own_folders, selection, kinds))
        opened += len(own_folders)
        names += [name for folder in folders for name in folder.files]
        links += sum(folder.links for folder in folders)
        hidden += sum(folder.hidden for folder in folders)
        books += sum(folder.books for folder in folders)
        level = _exchanged([name for folder in folders for name in folder.folders], world)
    return _Found(names, links, hidden, books, opened)


def _open_all(root: Path, folders: list[bytes], selection: Selection, kinds: Kinds) -> list[_Folder]:
    return map_in_threads(partial(_open, root, selection=selection, kinds=kinds), folders, THREADS)


def _open(root: Path, folder: bytes, selection: Selection, kinds: Kinds) -> _Folder:
    """The wanted names in one folder."""
    try:
        folders, files, links, hidden, books = retrying(partial(_scan, root, folder, kinds), RETRIES)
    except OSError as error:
        raise _no_folder(root, folder, error) from None
    wanted = selection.matches(files + links)
    chosen = [name for name, is_wanted in zip(files + links, wanted.tolist(), strict=True) if is_wanted]
    return _Folder(folders, chosen, int(wanted[len(files) :].sum()), hidden, books)


def _scan(root: Path, folder: bytes, kinds: Kinds) -> tuple[list[bytes], list[bytes], list[bytes], int, int]:
    """Folders, files and links in one folder, and how many hidden names and folders of bookkeeping were left out.

    The target of a link to a file is not checked.

    Raises ``DataError`` for a link to a folder that must not be followed.
    """
    folders: list[bytes] = []
    files: list[bytes] = []
    links: list[bytes] = []
    hidden = books = 0
    prefix = folder + b"/" if folder else b""
    with os.scandir(os.fsencode(root) + b"/" + folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(b"."):
                is_own = name == BOOKS or is_temporary(os.fsdecode(name))
                books += name == BOOKS and folder != b""
                hidden += not (is_own or kinds.hidden)
                if is_own or not kinds.hidden:
                    continue
            if not folder and name == INDEX and is_index(root / INDEX_NAME):
                continue
            kind = folders if entry.is_dir(follow_symlinks=False) else links if entry.is_symlink() else files
            if kind is links and kinds.follow_links and entry.is_dir():
                kinds.links.check(root, prefix + name)
                kind = folders
            kind.append(prefix + name)
    return folders, files, links, hidden, books


def _no_folder(root: Path, folder: bytes, error: OSError) -> DataError:
    problem = f"cannot be listed ({error.strerror})"
    if folder:
        return DataError(root / os.fsdecode(folder), problem, "check the folder and its permissions")
    problem = {errno.ENOENT: "no such folder", errno.ENOTDIR: "is not a folder"}.get(error.errno or 0, problem)
    return DataError(root, problem, "name the folder of a dataset, on a filesystem that all nodes see")


def _look_at_all(root: Path, names: list[bytes]) -> NDArray[np.int64]:
    """Size and modification time of each name, a row for each; the size is ``FOLDER`` for links to folders."""
    blocks = [names[start : start + BLOCK] for start in range(0, len(names), BLOCK)]
    rows = map_in_threads(partial(_look_at, root), blocks, THREADS)
    return np.concatenate(rows) if rows else np.empty((0, 2), np.int64)


def _look_at(root: Path, names: list[bytes]) -> NDArray[np.int64]:
    rows: list[tuple[int, int]] = []
    prefix = os.fsencode(root) + b"/"
    for name in names:
        try:
            status = retrying(partial(os.stat, prefix + name), RETRIES)
        except OSError as error:
            gone = "vanished while it was listed, or is a link to nothing"
            problem = gone if error.errno == errno.ENOENT else f"cannot be looked at ({error.strerror})"
            raise DataError(root / os.fsdecode(name), problem, "mend the dataset, or exclude the file") from None
        if stat.S_ISREG(status.st_mode):
            rows.append((status.st_size, status.st_mtime_ns))
        elif stat.S_ISDIR(status.st_mode):
            rows.append((FOLDER, 0))
        else:
            raise DataError(root / os.fsdecode(name), "is neither a file nor a folder", "remove or exclude it")
    try:
        return np.array(rows, np.int64)
    except OverflowError:
        for name, (_, time_ns) in zip(names, rows, strict=True):
            refuse_time(root / os.fsdecode(name), time_ns)
        raise


def _exchanged(own_names: list[bytes], world: World) -> list[bytes]:
    """The names that all ranks found, in rank order; one block of bytes travels much faster than a list."""
    return [name for block in world.all_gather(b"\0".join(own_names)) if block for name in block.split(b"\0")]
