"""Lands files: a temporary name, CRC32C over what is written, the source's time, then the rename."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path

from staging.atomic import TEMPORARY_SUFFIX, is_temporary
from staging.bookkeeping import BOOKKEEPING
from staging.checksums import RunningChecksum, checksums
from staging.errors import DataError
from staging.landing.sinks import Landed, kept_by
from staging.source.listing import UNKNOWN
from staging.storage.destination_folder import DestinationFolder, is_reachable
from staging.storage.holes import HOLE_BYTES
from staging.storage.write_ways import WriteWay, write_at

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
SHORT = 256  # nearly all names are shorter; too short for too many folders
NAME_KEPT = 55  # characters: a temporary name stays under the 255 bytes of a file name, at four bytes a character
FULL = (errno.ENOSPC, errno.EDQUOT)
LARGER = "free space there, or set the destination to a larger place"


class FileSink:
    """One file below the destination. Nothing has its name before ``close``; errors leave nothing behind."""

    __slots__ = (
        "_checksum", "_descriptor", "_destination", "_largest", "_mtime_ns", "_name", "_said", "_size", "_source",
        "_temporary",
    )  # fmt: skip

    def __init__(
        self, destination: DestinationFolder, temporary: str, name: str, size: int, mtime_ns: int, source: str,
        checksum: bool, largest: int | None = None,
    ) -> None:  # fmt: skip
        self._destination, self._temporary, self._largest = destination, temporary, largest
        self._name, self._said, self._mtime_ns, self._source = name, size, mtime_ns, source
        self._checksum, self._size = RunningChecksum() if checksum else None, 0
        try:
            self._descriptor = destination.open(temporary, NEW, make=True)
        except OSError as error:
            raise landing_error(destination / name, error) from error

    def write(self, data: memoryview) -> None:
        """Append ``data``. Raises ``DataError`` for a full disk and for anything else that the system refuses.

        So it does where the file would grow beyond the largest size that it may have.
        """
        if self._largest is not None and self._size + len(data) > self._largest:
            self.abandon()
            problem = f"grows beyond {self._largest} bytes, the most that a file of this set has"
            raise DataError(self._source, problem, "set the data sizes to the file's, or remove it from the set")
        try:
            if self._checksum is not None:
                self._checksum.update(data)
            write_at(self._descriptor, data, self._size, self._destination.way)
        except OSError as error:
            self.abandon()
            raise landing_error(self._destination / self._name, error) from error
        self._size += len(data)

    def close(self) -> list[Landed]:
        """Set the time and rename. Raises ``DataError`` if the size is not as announced, or the rename fails."""
        try:
            if self._said not in (self._size, UNKNOWN):
                problem = f"got {self._size} of its {self._said} bytes"
                raise DataError(self._destination / self._name, problem, "stage again")
            os.ftruncate(self._descriptor, self._size)  # in case it ends with zeros
            os.utime(self._descriptor, ns=(self._mtime_ns, self._mtime_ns))
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
            kept_ns = kept_by(self._destination.status(self._temporary), self._mtime_ns)
            self._destination.rename(self._temporary, self._name)
            self._temporary = ""
        except OSError as error:
            raise landing_error(self._destination / self._name, error) from error
        finally:
            self.abandon()
        crc, blocks = (UNKNOWN, b"") if self._checksum is None else (self._checksum.crc, self._checksum.blocks)
        return [Landed(self._name, self._size, crc, self._source, self._mtime_ns, kept_ns, blocks)]

    def abandon(self) -> None:
        """Remove the temporary file if there is still one."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
        if self._temporary:
            with suppress(OSError, DataError):  # the earlier error says more
                self._destination.unlink(self._temporary)
            self._temporary = ""


class FileSinkMaker:
    """Lands each entry as a file of the same name. ``checksum`` false leaves ``Landed.checksum`` unknown.

    ``largest``: the most bytes of a file that a transform makes, which may grow out of little.
    No two entries may make files of the same name. Used by many threads. A folder is made when its first file finds it
    missing.
    """

    def __init__(self, checksum: bool = True, largest: int | None = None) -> None:
        self._checksum, self._largest = checksum, largest
        self._token = secrets.token_hex(4)  # tells processes apart, and the count tells apart the files of this one
        self._numbers = itertools.count()
        self._sources: dict[tuple[Path, str], str] = {}
        """The entry that each file made by a transform came from."""
        self._lock = threading.Lock()

    def __call__(
        self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = ""
    ) -> FileSink:
        """A file ``name`` of ``size`` bytes (``UNKNOWN``: as many as arrive) with the time ``mtime_ns``."""
        folder, slash, base = _parts(name)
        if source:
            with self._lock:
                other = self._sources.setdefault((destination.path, name), source)
            if other != source:
                raise two_of_one_name(name, source, other)
        temporary = f"{folder}{slash}{self._temporary(base)}"
        largest = self._largest if source else None  # what is copied has the size of its source
        return FileSink(destination, temporary, name, size, mtime_ns, source or name, self._checksum, largest)

    def write_whole(self, destination: DestinationFolder, name: str, data: memoryview, mtime_ns: int) -> Landed:
        """Land a file that is there in one piece, as a sink does; raises what a sink raises."""
        folder, _, base = _parts(name)
        temporary = self._temporary(base)
        crc, blocks = checksums(data) if self._checksum else (UNKNOWN, b"")
        try:
            above = destination.held(folder)
            if above is not None:
                status = _write_whole(above, temporary, base, data, mtime_ns, destination.way)
            else:
                with destination.reach(folder, make=True) as above:
                    status = _write_whole(above, temporary, base, data, mtime_ns, destination.way)
        except OSError as error:
            raise landing_error(destination / name, error) from error
        return Landed(name, len(data), crc, name, mtime_ns, kept_by(status, mtime_ns), blocks)

    def _temporary(self, base: str) -> str:
        """The temporary name of a file until it is complete, in the same folder."""
        return f".{base[:NAME_KEPT]}.{self._token}{next(self._numbers):06x}{TEMPORARY_SUFFIX}"

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        """The file itself."""
        return [(name, size)]


def two_of_one_name(name: str, source: object, other: str) -> DataError:
    """The error for two entries that become files of the same name; the second one may be named in full."""
    return DataError(
        source, f"would become {name}, and so would {other}", "exclude one of them, or rename what it becomes"
    )


def refuse_outside(name: str, source: object = "") -> None:
    """Raise ``DataError`` for a name that would land outside the destination, or pass for a temporary file.

    ``source`` is what contains the name, such as an archive.
    """
    usual = "/." not in name and "//" not in name and name[:1] not in ("", "/", ".") and name[-1] != "/"
    if usual and len(name) < SHORT and name.isascii() and "\0" not in name:
        return  # nearly all names, in a third of the time
    problem = ""
    parts = name.split("/")
    if name.startswith("/"):
        problem = "is absolute"
    elif ".." in parts:
        problem = "leads upwards"
    elif "" in parts or "." in parts:
        problem = "has an empty part"
    elif is_temporary(parts[-1]):
        problem = "is the name of an unfinished file"
    elif BOOKKEEPING in parts:
        problem = "lies in staging's own bookkeeping"
    elif not is_reachable(name):
        problem = "is none that a filesystem has"
    if problem:
        raise DataError(source or "destination", f"the file name '{name}' {problem}", "rename it, or leave it out")


def _write_whole(
    above: int, temporary: str, base: str, data: memoryview, mtime_ns: int, way: WriteWay
) -> os.stat_result:
    """Write a file into an open folder and give it its name; returns the status that it had once it was closed.

    Straight-line code without an object for each file: a set of many small files lands in a tenth less time.
    """
    descriptor = os.open(temporary, NEW, 0o666, dir_fd=above)
    try:
        try:
            write_at(descriptor, data, 0, way)
            if len(data) >= HOLE_BYTES:
                os.ftruncate(descriptor, len(data))
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(descriptor)
        status = os.stat(temporary, dir_fd=above, follow_symlinks=False)
        os.rename(temporary, base, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=above)
        raise
    return status


def _parts(name: str) -> tuple[str, str, str]:
    """Folder, slash and base of a name that may land."""
    refuse_outside(name)
    return name.rpartition("/")


def landing_error(path: Path, error: OSError) -> DataError:
    """The error that the user gets when the system refuses to write ``path``."""
    change = LARGER if error.errno in FULL else "check the destination and its permissions"
    return DataError(path, f"cannot be written ({error.strerror or error})", change)
