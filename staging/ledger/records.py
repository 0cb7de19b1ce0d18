"""What a manifest says has landed: compact columns for millions of files."""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from staging.checksums import inner_blocks
from staging.landing.sinks import UNSET, Landed, kept
from staging.ledger.jsonl import read_lines
from staging.source.listing import UNKNOWN, Listing
from staging.storage.destination_folder import DestinationFolder, is_file_of

BLOCKS = "crc32c_256k"
"""Key of ``Landed.blocks`` in a line; another block size would have another key."""
SOURCE_SIZE = "source_size"
"""Key of ``Landed.source_size`` in a line; lines of earlier versions have none."""
WIDTH = 6
"""How many numbers are kept for each file."""
DOUBTED = 0
"""In place of the number of files of an entry: this one is about to be written again, and may be anything meanwhile."""


class Claim(NamedTuple):
    """A statement that an entry became a file."""

    name: str
    source: str
    mtime_ns: int
    """Time of the entry."""
    source_size: int
    """Bytes of the entry; ``UNSET`` if the manifest does not say."""

    def is_of(self, mtime_ns: int, size: int) -> bool:
        """Whether the entry had this time and, if known, this size."""
        return self.mtime_ns == mtime_ns and self.source_size in (UNSET, size)


@dataclass(frozen=True)
class Columns:
    """Numbers of files, in the order of ``Records.position``; checksums of doubted files are unknown."""

    sizes: NDArray[np.int64]
    checksums: NDArray[np.int64]
    extents: NDArray[np.int64]
    """(files, 2): where the values of a file begin and end in ``blocks``."""
    blocks: NDArray[np.uint32]


class Records:
    """Files that landed, one per name; if a name comes twice, the last line holds, also if it says "removed"."""

    def __init__(self) -> None:
        self.position: dict[str, int] = {}
        """Names, and the position of each in ``sources``; in the order in which they came."""
        self.sources: list[str] = []
        """The entry that each file came from."""
        self._numbers = array("q")
        """For each file: bytes, CRC32C, time of the source, how many files that has, time at the destination, bytes of
        the source."""
        self._before: dict[str, list[Claim]] = {}
        """For names that came from several entries: the claims before the last one."""
        self._blocks = bytearray()
        """``Landed.blocks`` of all files, one after another."""
        self._extents = array("q")
        """Two per file: where its part of ``_blocks`` begins and ends."""

    @classmethod
    def read(cls, path: Path) -> Records:
        """The records of the manifest at ``path``; torn and malformed lines are left out."""
        records = cls()
        for item in read_lines(path):
            records._add(item)
        return records

    def __len__(self) -> int:
        return len(self.position)

    def __iter__(self) -> Iterator[Landed]:
        return (self._landed(name, position) for name, position in self.position.items())

    def __contains__(self, name: str) -> bool:
        return name in self.position

    def __getitem__(self, name: str) -> Landed:
        return self._landed(name, self.position[name])

    def size(self, name: str) -> int:
        """Bytes of the file called ``name``."""
        return self._numbers[WIDTH * self.position[name]]

    def columns(self) -> Columns:
        """Sizes and checksums of all files."""
        positions = np.fromiter(self.position.values(), np.int64, len(self.position))
        numbers = np.frombuffer(self._numbers, np.int64).reshape(-1, WIDTH)[positions]
        checksums = np.where(numbers[:, 3] == DOUBTED, UNKNOWN, numbers[:, 1])
        extents = np.frombuffer(self._extents, np.int64).reshape(-1, 2)[positions] // 4
        return Columns(numbers[:, 0], checksums, extents, np.frombuffer(self._blocks, ">u4").astype(np.uint32))

    def complete(
        self,
        listing: Listing,
        entries: NDArray[np.int64],
        destination: DestinationFolder,
        bad: Collection[str] = (),
        *,
        as_they_are: bool = False,
    ) -> NDArray[np.bool_]:
        """Which of ``entries`` need not be moved again: one truth value for each.

        An entry is complete if every file that came from it is named with the entry's modification time, is below
        ``destination`` with the size and the time that it landed with, and is not in ``bad``. The entry's size must
        also be that in the manifest or, if files land ``as_they_are``, without a transform, that of the file; the
        checksum must then be the one that an index gives, if it does.
        """
        order = {listing.names[int(entry)]: at for at, entry in enumerate(entries)}
        mtimes_ns, sizes = listing.mtimes_ns[entries].tolist(), listing.sizes[entries].tolist()
        checksums = listing.checksums[entries].tolist() if as_they_are else [UNKNOWN] * len(entries)
        promised = np.zeros(len(entries), np.int64)
        intact = np.zeros(len(entries), np.int64)
        for name, position in self.position.items():
            at = order.get(self.sources[position])
            if at is None:
                continue
            numbers = self._numbers[WIDTH * position : WIDTH * (position + 1)]
            size, checksum, _, files_of_source, kept_ns, _ = numbers
            if files_of_source == DOUBTED or (UNKNOWN not in (checksum, checksums[at]) and checksum != checksums[at]):
                continue
            if self._claim(name, position, as_they_are=as_they_are).is_of(mtimes_ns[at], sizes[at]):
                promised[at] = files_of_source
                intact[at] += name not in bad and is_as_landed(destination.status(name), size, kept_ns)
        whole: NDArray[np.bool_] = (intact == promised) & (intact > 0)
        return whole

    def claims(self) -> Iterator[Claim]:
        """Which entries became which files; for one name, all that ever did."""
        for name, position in self.position.items():
            yield from self._before.get(name, ())
            yield self._claim(name, position)

    def is_doubted(self, name: str) -> bool:
        """Whether a file was about to be written again when the manifest was last written to."""
        return self._numbers[WIDTH * self.position[name] + 3] == DOUBTED

    def of_sources(self, sources: Collection[str]) -> list[Landed]:
        """The files that came from these entries."""
        return [self._landed(name, at) for name, at in self.position.items() if self.sources[at] in sources]

    def changed(self, listing: Listing, entries: NDArray[np.int64], *, as_they_are: bool = False) -> int:
        """How many of ``entries`` have another modification time, or ``as_they_are`` another size, than landed."""
        order = {listing.names[int(entry)]: int(entry) for entry in entries}
        other = set()
        for name, position in self.position.items():
            entry = order.get(self.sources[position])
            if entry is None:
                continue
            claim = self._claim(name, position, as_they_are=as_they_are)
            if not claim.is_of(int(listing.mtimes_ns[entry]), int(listing.sizes[entry])):
                other.add(entry)
        return len(other)

    def _landed(self, name: str, position: int) -> Landed:
        size, checksum, mtime_ns, _, kept_ns, source_size = self._numbers[WIDTH * position : WIDTH * (position + 1)]
        start, stop = self._extents[2 * position : 2 * position + 2]
        blocks = bytes(self._blocks[start:stop])
        source, kept_ns = self.sources[position], kept(mtime_ns, kept_ns)
        return Landed(name, size, checksum, source, mtime_ns, kept_ns, blocks, source_size)

    def _claim(self, name: str, position: int, *, as_they_are: bool = False) -> Claim:
        size, _, mtime_ns, _, _, source_size = self._numbers[WIDTH * position : WIDTH * (position + 1)]
        return Claim(name, self.sources[position], mtime_ns, size if as_they_are else source_size)

    def _add(self, item: dict[str, Any]) -> None:
        if item.get("removed") is True and isinstance(item.get("name"), str):
            self.position.pop(item["name"], None)
            return
        try:
            name, source = item["name"], item["source"]
            time_ns = item["mtime_ns"]
            more = item.get("of", 1), item.get("kept_ns", time_ns), item.get(SOURCE_SIZE, UNSET)
            numbers = array("q", (item["size"], item["crc32c"], time_ns, *more))
        except (KeyError, TypeError, OverflowError):
            return
        if not isinstance(name, str) or not isinstance(source, str):
            return
        start = len(self._blocks)
        self._blocks += _parsed_blocks(item.get(BLOCKS), numbers[0])
        extent = array("q", (start, len(self._blocks)))
        if source == name:
            source = name  # one string in memory, not two
        position = self.position.setdefault(name, len(self.sources))
        if position == len(self.sources):
            self.sources.append(source)
            self._numbers += numbers
            self._extents += extent
        else:
            if self.sources[position] != source or name in self._before:
                self._before.setdefault(name, []).append(self._claim(name, position))
            self.sources[position] = source
            self._numbers[WIDTH * position : WIDTH * (position + 1)] = numbers
            self._extents[2 * position : 2 * position + 2] = extent


def _parsed_blocks(text: object, size: int) -> bytes:
    """``Landed.blocks`` of a file of ``size`` bytes; empty if ``text`` is anything else, since none is better."""
    if not isinstance(text, str) or len(text) != 8 * inner_blocks(size):
        return b""
    try:
        blocks = bytes.fromhex(text)
    except ValueError:
        return b""
    return blocks if 2 * len(blocks) == len(text) else b""


def is_as_landed(status: os.stat_result | None, size: int, kept_ns: int) -> bool:
    """Whether this is a file, and no link, with the size and the time that it landed with."""
    return is_file_of(status, size) and status is not None and status.st_mtime_ns == kept_ns


def has_size(path: Path, size: int) -> bool:
    """Whether ``path`` is a file, and no link, of ``size`` bytes."""
    try:
        return is_file_of(os.lstat(path), size)
    except OSError:
        return False
