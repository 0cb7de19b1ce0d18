"""Files that the ranks of a node write together, each its own slices; they get their names when all have written."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from staging.atomic import TEMPORARY_SUFFIX
from staging.checksums import BLOCK_BYTES, checksums_of_parts, combined, crc32c
from staging.errors import DataError
from staging.landing.file_sink import NAME_KEPT, landing_error, refuse_outside
from staging.landing.sinks import Landed, kept_by
from staging.source.listing import UNKNOWN, Listing
from staging.storage.destination_folder import DestinationFolder
from staging.storage.holes import HOLE_BYTES, is_zeros
from staging.storage.write_ways import write_at

THERE = os.O_RDWR | os.O_CLOEXEC
SHARED = THERE | os.O_CREAT


RANGE = np.dtype([("start", np.int64), ("size", np.uint32), ("checksum", np.uint32)])
"""A range of a file within one block, and its CRC32C."""


@dataclass(frozen=True)
class Part:
    """What one rank has written of a file."""

    identity: tuple[int, int]
    """Device and number of the file that it was written to."""
    ranges: NDArray[np.void]
    """Each range as ``RANGE``, in any order."""


@dataclass
class Written:
    """Ranges of a file that are written, with the CRC32C of each; neighbours within one block are one range.

    A block that is whole takes 12 bytes.
    """

    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the start of each range that is not a whole block: its stop and its CRC32C."""
    identity: tuple[int, int] = (0, 0)
    """Device and number of the file that they were written to."""
    _starts: dict[int, int] = field(default_factory=dict)
    """By the stop of each of ``ranges``: its start."""
    _blocks: array[int] = field(default_factory=lambda: array("q"))
    """The start of each whole block."""
    _checksums: array[int] = field(default_factory=lambda: array("I"))
    """Its CRC32C."""

    def __len__(self) -> int:
        return len(self.ranges) + len(self._blocks)

    def part(self) -> Part:
        """All that is there."""
        ranges, rest = np.empty(len(self), RANGE), len(self._blocks)
        for key, blocks in (("start", self._blocks), ("size", BLOCK_BYTES), ("checksum", self._checksums)):
            ranges[key][:rest] = blocks
        ranges[rest:] = [(start, stop - start, checksum) for start, (stop, checksum) in self.ranges.items()]
        return Part(self.identity, ranges)

    def add(self, start: int, stop: int, checksum: int) -> None:
        """Add a range, which overlaps no other and has no block border inside it."""
        if start % BLOCK_BYTES and start in self._starts:
            before = self._starts.pop(start)
            checksum = combined(self.ranges.pop(before)[1], checksum, stop - start)
            start = before
        if stop % BLOCK_BYTES and stop in self.ranges:
            after, other = self.ranges.pop(stop)
            del self._starts[after]
            checksum = combined(checksum, other, after - stop)
            stop = after
        if stop - start == BLOCK_BYTES:
            self._blocks.append(start)
            self._checksums.append(checksum)
        else:
            self.ranges[start] = stop, checksum
            self._starts[stop] = start


class SharedFiles:
    """One rank's part in such files below ``destination``; ``token`` is the same on all ranks of the staging.

    Entries are those of ``listing``, and are below ``root``, for errors to name them. Used by many threads. No file has
    its name before ``settle``, which one rank of the node calls once all have written.
    """

    def __init__(
        self, destination: DestinationFolder, listing: Listing, token: str, checksum: bool, root: Path = Path()
    ) -> None:
        self._destination, self._listing, self._root = destination, listing, root
        self._token, self._checksum = token, checksum
        self._descriptors: dict[int, int] = {}
        self._identities: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self.written: dict[int, Written] = {}
        """What this rank has written, by entry."""

    def write(self, entry: int, start: int, data: memoryview) -> None:
        """Write ``data`` into an entry from ``start`` on. Raises ``DataError`` for what the system refuses.

        A few zeros are left out, as they may be the part of a hole that is in this rank's slice.
        """
        parts = [(at, min(at - at % BLOCK_BYTES + BLOCK_BYTES, start + len(data))) for at in borders(start, len(data))]
        checksums = [crc32c(data[at - start : stop - start]) if self._checksum else 0 for at, stop in parts]
        try:
            descriptor = self._open(entry)
            if len(data) >= HOLE_BYTES or not is_zeros(data):
                write_at(descriptor, data, start, self._destination.way)
        except OSError as error:
            raise landing_error(self._destination / self._listing.names[entry], error) from error
        with self._lock:
            written = self.written.setdefault(entry, Written(identity=self._identities[entry]))
            for (at, stop), checksum in zip(parts, checksums, strict=True):
                written.add(at, stop, checksum)

    def close(self) -> None:
        """Close all open files, as every rank does before one of them calls ``settle``.

        Raises ``DataError`` where the system tells only then that it could not write.
        """
        with self._lock:
            while self._descriptors:
                entry, descriptor = self._descriptors.popitem()
                try:
                    os.close(descriptor)
                except OSError as error:
                    raise landing_error(self._destination / self._listing.names[entry], error) from error

    def abandon(self) -> None:
        """Remove the unfinished files."""
        while self._descriptors:
            with suppress(DataError):  # an earlier error is the reason
                self.close()
        with self._lock:
            begun = [*self._identities]
        for entry in begun:
            with suppress(OSError, DataError):  # another rank may have removed it, or given it its name
                self._destination.unlink(self._temporary(entry))

    def settle(self, entry: int, parts: Sequence[Part]) -> Landed:
        """Give its name to an entry that several ranks have written, each a part; returns what landed.

        Raises ``DataError`` if bytes are missing or differ from the index, if the file that the ranks have written is
        no longer there, and for what the system refuses.
        """
        name, size = self._listing.names[entry], int(self._listing.sizes[entry])
        mtime_ns, expected = int(self._listing.mtimes_ns[entry]), int(self._listing.checksums[entry])
        ranges = np.concatenate([part.ranges for part in parts])
        ranges = ranges[np.argsort(ranges["start"])]
        try:
            if not are_whole(ranges, size):
                raise DataError(
                    self._destination / name, "lacks parts that other ranks should have written", "stage again"
                )
            checksum, blocks = checksums_of(ranges) if self._checksum else (UNKNOWN, b"")
            if self._checksum and expected not in (UNKNOWN, checksum):
                raise DataError(
                    self._root / name,
                    f"has CRC32C {checksum:08x} where the index says {expected:08x}: it was damaged or written to",
                    "copy the file again, or make the index again with `hpcbench data index`",
                )
            descriptor = self._destination.open(self._temporary(entry), THERE)
            try:
                if any(part.identity != identity_of(descriptor) for part in parts):
                    raise DataError(
                        self._destination / name, "was replaced while ranks wrote it", "stage when nothing else does"
                    )
                os.ftruncate(descriptor, size)  # in case it ends with zeros
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            finally:
                os.close(descriptor)
            kept_ns = kept_by(self._destination.status(self._temporary(entry)), mtime_ns)
            self._destination.rename(self._temporary(entry), name)
        except OSError as error:
            raise landing_error(self._destination / name, error) from error
        return Landed(name, size, checksum, name, mtime_ns, kept_ns, blocks, size)

    def _open(self, entry: int) -> int:
        with self._lock:
            if entry not in self._descriptors:
                self._descriptors[entry] = self._destination.open(self._temporary(entry), SHARED, make=True)
                self._identities[entry] = identity_of(self._descriptors[entry])
            return self._descriptors[entry]

    def _temporary(self, entry: int) -> str:
        """The temporary name of an entry until it is complete: the same on all ranks."""
        name = self._listing.names[entry]
        refuse_outside(name)
        folder, slash, base = name.rpartition("/")
        return f"{folder}{slash}.{base[:NAME_KEPT]}.{self._token}-{entry:06x}{TEMPORARY_SUFFIX}"


def are_whole(ranges: NDArray[np.void], size: int) -> bool:
    """Whether ranges in the order of their starts are all of a file of ``size`` bytes, each byte once."""
    borders = np.concatenate([[0], ranges["start"] + ranges["size"]])
    return bool(np.array_equal(ranges["start"], borders[:-1]) and borders[-1] == size)


def checksums_of(ranges: NDArray[np.void]) -> tuple[int, bytes]:
    """What ``staging.checksums.checksums`` returns for a file of these ranges, in the order of their starts."""
    columns = zip(ranges["size"], ranges["checksum"], strict=True)
    return checksums_of_parts((int(size), int(checksum)) for size, checksum in columns)


def identity_of(descriptor: int) -> tuple[int, int]:
    """Device and number of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def borders(start: int, size: int) -> list[int]:
    """``start``, and the block borders within ``size`` bytes from there on."""
    return [start, *range(start - start % BLOCK_BYTES + BLOCK_BYTES, start + size, BLOCK_BYTES)]
