"""Allows one staging at a time into a destination, and only into a folder that is new, empty, or staging's own."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from staging.atomic import sync_folder
from staging.bookkeeping import BOOKKEEPING
from staging.errors import DataError
from staging.ledger.journal import NAME as JOURNAL
from staging.ledger.jsonl import is_there
from staging.ledger.manifest import NAME as MANIFEST
from staging.one_line import one_line
from staging.ranks.world import Place
from staging.storage.destination_folder import DestinationFolder, open_book
from staging.storage.space import existing_parent

NAME = "lock"
SHOWN = 100
"""The most characters of a holder's own description that a message shows; a node's name has at most 64."""
HOLDER_BYTES = 1 << 16
"""More than a holder ever writes; anything longer describes no holder."""
WRITTEN_S = 0.2
"""Within this many seconds of taking the lock, a holder has written who it is."""


class DestinationLock:
    """A destination that is held until ``release``, or until the process ends; a context manager."""

    def __init__(
        self, descriptor: int | None = None, path: Path = Path(), holder: dict[str, Any] | None = None
    ) -> None:
        self._descriptor, self._path = descriptor, path
        self._holder = holder or {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def open(self, destination: Path) -> DestinationFolder:
        """The locked destination, to be closed. Raises ``DataError`` if a link or another folder is in its place."""
        folder = DestinationFolder(destination)
        try:
            self.refuse_other(folder)
        except BaseException:
            folder.close()
            raise
        return folder

    def refuse_other(self, folder: DestinationFolder) -> None:
        """Raise ``DataError`` if ``folder`` is not the locked one: somebody has put another in its place."""
        if self._descriptor is None:
            return
        status = folder.status(f"{BOOKKEEPING}/{NAME}")
        if status is None or not os.path.samestat(status, os.fstat(self._descriptor)):
            raise DataError(folder.path, "is not the folder that was locked", "let it be, and run it again")

    def refuse_another_node(self) -> None:
        """Raise ``DataError`` if another node has written that it holds this destination, too.

        Some shared filesystems keep locks per node. To be called after all ranks of a staging have taken their locks:
        then each node has written who it is, and of those that wrote at once, at least one finds something else.
        """
        if self._descriptor is None:
            return
        try:
            descriptor = open_book(self._path, os.O_RDONLY)  # a file that is opened anew shows what other nodes wrote
        except OSError:
            return  # it is gone, as ``refuse_other`` will say
        try:
            # Two that wrote at once may have left a mixture. A full disk leaves nothing.
            if os.fstat(descriptor).st_size and (holder := _holder(descriptor)) != self._holder:
                node, job = self._holder["node"], self._holder["job"]
                raise _held(self._path, holder or {"job": job}, node, job)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Let the next staging have the destination; a second call does nothing."""
        if self._descriptor is None:
            return
        os.ftruncate(self._descriptor, 0)
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # closing alone would leave it to children that inherited it
        os.close(self._descriptor)
        self._descriptor = None


def lock_destination(destination: Path, source: Path, place: Place, job: str) -> DestinationLock:
    """Hold ``destination`` for this node; its first rank does so, the others have nothing to hold.

    ``job`` is the same on all ranks and new for each staging; once all have returned from here, they call
    ``DestinationLock.refuse_another_node``. Raises ``DataError`` if the destination is not ours (a file, a folder with
    other content, within the source or around it), or if another staging or another node holds it. Nothing is touched
    then.
    """
    if place.local_rank != 0:
        return DestinationLock()
    refuse_nesting(source, destination)
    refuse_strangers(destination)
    try:
        (destination / BOOKKEEPING).mkdir(parents=True, exist_ok=True)
        sync_folder(destination)  # otherwise there might be files after a crash, and nothing would say whose they are
    except OSError as error:
        raise DataError(destination, f"cannot be made ({error.strerror})", "choose another destination") from None
    return lock(destination, place.node_name, job)


def refuse_nesting(source: Path, destination: Path) -> None:
    """Raise ``DataError`` if one of the two is within the other."""
    inner, outer = Path(os.path.realpath(destination)), Path(os.path.realpath(source))
    change = "choose a destination outside the source"
    if inner == outer:
        raise DataError(destination, "is the source itself", change)
    if inner.is_relative_to(outer):
        raise DataError(destination, f"lies within the source {source}", change)
    if outer.is_relative_to(inner):
        raise DataError(destination, f"has the source {source} within it", change)


def refuse_strangers(destination: Path) -> None:
    """Raise ``DataError`` unless ``destination`` is new, empty, or has been staged to before."""
    bookkeeping = destination / BOOKKEEPING
    try:
        destination.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unseen(destination, error) from None
    try:
        if not destination.is_dir():
            raise DataError(destination, "is not a folder", "choose another destination")
        # In this order, since another node may be making the bookkeeping now, which it does before anything else.
        filled = any(path.name != BOOKKEEPING for path in destination.iterdir())
        books = is_there(bookkeeping / MANIFEST) or is_there(bookkeeping / JOURNAL)
        if bookkeeping.is_symlink() or (filled and not books):
            raise DataError(
                destination, "is not empty and was not made by staging", "empty it, or choose another destination"
            )
    except OSError as error:
        raise _unseen(destination, error) from None


def refuse_unmakeable(destination: Path) -> None:
    """Raise ``DataError`` if ``destination`` does not exist and this user cannot make it. Nothing is made."""
    existing = existing_parent(destination)
    if existing == destination:
        return
    if not existing.is_dir():
        problem = "is not a folder"
    elif not os.statvfs(existing).f_blocks:  # such as /proc
        problem = "takes no files"
    elif not os.access(existing, os.W_OK | os.X_OK):
        problem = "is not writable"
    else:
        return
    raise DataError(destination, f"cannot be made, since {existing} {problem}", "choose another destination")


def _unseen(destination: Path, error: OSError) -> DataError:
    return DataError(destination, f"cannot be looked at ({error.strerror})", "choose another destination")


def lock(destination: Path, node: str, job: str) -> DestinationLock:
    """Take the lock of ``destination`` without waiting. Raises ``DataError`` that names the holder."""
    path = destination / BOOKKEEPING / NAME
    try:
        descriptor = open_book(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise DataError(path, f"cannot be written ({error.strerror})", "choose another destination") from None
    try:
        holder = _take(descriptor, path, node, job)
    except BaseException:
        os.close(descriptor)
        raise
    return DestinationLock(descriptor, path, holder)


def _take(descriptor: int, path: Path, node: str, job: str) -> dict[str, Any]:
    """Lock an open file, and write who holds it, which is returned."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(WRITTEN_S)
        raise _held(path, _holder(descriptor), node, job) from None
    except OSError as error:
        problem = f"its filesystem has no locks ({error.strerror})"
        raise DataError(path, problem, "choose a destination on the node's own storage") from None
    holder = _holder(descriptor)
    # Some shared filesystems keep locks per node: then the file still names the node that was here before.
    if not _is_same(descriptor, path) or (holder.get("job") == job and holder.get("node") != node):
        raise _held(path, holder, node, job)
    mine = {"pid": os.getpid(), "node": node, "job": job, "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
    os.ftruncate(descriptor, 0)
    with suppress(OSError):  # such as a full disk, from which `--clean` may be about to remove something
        os.pwrite(descriptor, json.dumps(mine).encode(), 0)
        os.fsync(descriptor)  # other nodes see it from now on
    return mine


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether the file is still at ``path``: `--clean` may have removed it between opening and locking."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(descriptor, HOLDER_BYTES, 0))
    except (OSError, ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _held(path: Path, holder: dict[str, Any], node: str, job: str) -> DataError:
    destination = path.parent.parent
    pid, other, since = (_word(holder.get(key)) for key in ("pid", "node", "time"))
    if holder.get("job") == job and holder.get("node") != node:
        return DataError(destination, f"two nodes share this destination ({other}, {node})", "put {node} into it")
    who = f"pid {pid} on node {other} since {since}"
    return DataError(destination, f"another staging holds it ({who})", "wait for it, or choose another destination")


def _word(value: object) -> str:
    return one_line(str(value), SHOWN) if isinstance(value, str | int) else "?"
