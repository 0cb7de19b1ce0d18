"""Where the bytes come from: files of a folder, and what else can be read as entries of a listing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

from staging.counters import Counters
from staging.errors import DataError
from staging.source.listing import Listing
from staging.source.retry import retrying

STAT_BLOCK = 512
"""Bytes per block of ``st_blocks``, on any filesystem (stat(2))."""
SMALLEST_HOLES = 4096
"""Bytes; some filesystems keep smaller parts of a file with its metadata, and count no block for them."""

READ = os.O_RDONLY | os.O_NONBLOCK
"""Does not wait for the writer of a pipe; reading at an offset in one fails."""


class Reader(Protocol):
    """Reads entries one after another, each from its start to its end. Used by one thread."""

    counters: Counters

    def read_into(self, entry: int, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes of ``entry`` from ``offset`` on.

        Raises ``DataError`` if the entry is missing, unreadable, or shorter than its listing says.
        """

    def finish(self, entry: int, *, is_last: bool = True) -> None:
        """All bytes of ``entry``, or of a part of it, are read: raise ``DataError`` if the listing is no longer true.

        ``is_last`` says that its last bytes were among them, so that it counts as read.
        """

    def close(self) -> None:
        """Close what is open."""


class Source(Protocol):
    """A listing and the bytes behind it."""

    listing: Listing
    skipped: str
    """A message on what is not in the listing though nobody excluded it; empty if nothing is."""
    sparse: dict[int, int]
    """Entries read by this process that take fewer bytes on disk than their size, and those bytes on disk."""

    def reader(self) -> Reader:
        """A reader for one thread."""


class TreeSource:
    """The files of ``listing`` below ``root``."""

    def __init__(
        self, root: Path, listing: Listing, *, cold: bool = False, retries: int = 3, skipped: str = ""
    ) -> None:
        self.root = root
        self.skipped = skipped
        self.listing = listing
        self.cold = cold
        self.retries = retries
        self.sparse: dict[int, int] = {}

    def reader(self) -> Reader:
        """A reader for one thread."""
        return FileReader(self)

    def open(self, name: str) -> int:
        """Open a file for reading; one that an index lists and that is a pipe is not waited for."""
        return os.open(f"{self.root}/{name}", READ)


class FileReader:
    """Reads files with plain system calls; never through a memory map, so that the system counts what is read."""

    def __init__(self, source: TreeSource) -> None:
        self.counters = Counters()
        self._source = source
        self._root = str(source.root)
        self._entry = -1
        self._descriptor = -1
        self._path = ""

    def read_into(self, entry: int, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from a file; one that is too short has changed."""
        try:
            retrying(lambda: self._read(entry, offset, buffer), self._source.retries, self._count_retry)
        except OSError as error:
            raise self._unreadable(error) from None

    def _read(self, entry: int, offset: int, buffer: memoryview) -> None:
        if entry != self._entry:
            self._open(entry)
        done, size = 0, len(buffer)
        try:
            while done < size:
                count = os.preadv(self._descriptor, [buffer[done:] if done else buffer], offset + done)
                if count == 0:
                    raise self._changed(f"ends after {offset + done} of {self._source.listing.sizes[entry]} bytes")
                done += count
        except OSError:
            self.close()  # a retry opens the file again, which cures a stale handle
            raise
        self.counters.bytes_read += size

    def _status(self, entry: int) -> os.stat_result:
        if entry != self._entry:
            self._open(entry)
        try:
            return os.fstat(self._descriptor)
        except OSError:
            self.close()  # the retry looks at what has the name now, which may have replaced what was read
            raise

    def _count_retry(self) -> None:
        self.counters.retries += 1

    def _open(self, entry: int) -> None:
        self.close()
        name = self._source.listing.names[entry]
        self._path = f"{self._root}/{name}"
        self._descriptor = self._source.open(name)
        os.set_blocking(self._descriptor, True)
        self._entry = entry
        self.counters.metadata_operations += 2
        if self._source.cold:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def finish(self, entry: int, *, is_last: bool = True) -> None:
        """Check the size and time of a file, and close it; an empty file is opened here."""
        try:
            status = retrying(lambda: self._status(entry), self._source.retries, self._count_retry)
        except OSError as error:
            raise self._unreadable(error) from None
        listing = self._source.listing
        size, time_ns = int(listing.sizes[entry]), int(listing.mtimes_ns[entry])
        if status.st_size != size:
            raise self._changed(f"has {status.st_size} bytes where {size} were listed")
        if status.st_mtime_ns != time_ns:
            raise self._changed("was written to since it was listed")
        taken = status.st_blocks * STAT_BLOCK
        if size - taken > SMALLEST_HOLES and (taken or is_one_hole(self._descriptor)):
            self._source.sparse[entry] = taken
        self.counters.files_read += is_last
        self.counters.metadata_operations += 1
        self.close()

    def close(self) -> None:
        """Close the file that is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._entry = self._descriptor = -1

    def _changed(self, problem: str) -> DataError:
        return DataError(
            self._path, f"changed while it was staged: it {problem}", "stage again when nothing writes to it"
        )

    def _unreadable(self, error: OSError) -> DataError:
        if error.errno == errno.ESPIPE:
            return DataError(self._path, "is a pipe by now, not a file", "remove it, and stage again")
        if error.errno == errno.ENOENT:
            return DataError(self._path, "vanished from the source", "stage again when nothing changes it")
        return DataError(
            self._path, f"cannot be read ({error.strerror})", "check the file, its permissions and its disk"
        )


def is_one_hole(descriptor: int) -> bool:
    """Whether a file holds no data at all; some network filesystems count no blocks for any file."""
    try:
        os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError as error:
        return error.errno == errno.ENXIO
    return False
