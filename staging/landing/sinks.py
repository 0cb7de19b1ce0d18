"""Where the bytes of a file go on the node where it lands: a file, a transform, the members of an archive."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from staging.storage.destination_folder import DestinationFolder

UNSET = -1


def kept(mtime_ns: int, kept_ns: int) -> int:
    """``Landed.kept_ns`` of a file with the time ``mtime_ns``, for which the destination reports ``kept_ns``."""
    return UNSET if kept_ns == mtime_ns else kept_ns


def kept_by(status: os.stat_result | None, mtime_ns: int) -> int:
    """The same, by the status of a file that is closed: closing one may change its time."""
    return UNSET if status is None else kept(mtime_ns, status.st_mtime_ns)


@dataclass(frozen=True)
class Landed:
    """A file that is complete under its name below the destination."""

    name: str
    """Relative to the destination."""
    size: int
    """Bytes on disk."""
    checksum: int
    """CRC32C of the bytes on disk; -1 with ``verify`` none."""
    source: str
    """Relative name of the entry that it came from; many files may come from one archive."""
    mtime_ns: int
    """Modification time of the source."""
    kept_ns: int = UNSET
    """The time that the destination keeps for the file, if it is coarser than ``mtime_ns``."""
    blocks: bytes = b""
    """``RunningChecksum.blocks`` of the bytes on disk, to check parts with; empty if not known."""
    source_size: int = UNSET
    """Bytes of the entry that it came from, if a transform may have changed them."""

    @property
    def landed_ns(self) -> int:
        """The modification time of the file at the destination."""
        return self.mtime_ns if self.kept_ns == UNSET else self.kept_ns


class Sink(Protocol):
    """Takes the bytes of one entry in order. Used by one thread; ``abandon`` may follow any call."""

    def write(self, data: memoryview) -> None:
        """Take the next bytes; the buffer is reused afterwards, so a sink that keeps them must copy them."""

    def close(self) -> list[Landed]:
        """All bytes have arrived: give the resulting files their names, and return what landed."""

    def abandon(self) -> None:
        """Remove everything unfinished."""


class SinkMaker(Protocol):
    """Opens a sink for each entry that lands below ``destination``."""

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        """A sink for the file ``name`` of ``size`` bytes, which comes from the entry ``source`` (empty: ``name``).

        Raises ``DataError`` if a file of this name has come from another entry.
        """

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        """Names and bytes of the files that the entry becomes, or a careful estimate of them.

        If only the content tells the names (an archive), it is one file of all bytes.
        """
