"""The landing end of a pipeline: bytes of pieces go to sinks, and what is complete is handed on to be made durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from staging.checksums import crc32c
from staging.counters import Counters
from staging.errors import DataError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.shared_files import SharedFiles
from staging.landing.sinks import Landed, Sink, SinkMaker
from staging.moving.streams import Fragment, Piece
from staging.source.listing import UNKNOWN, Listing
from staging.storage.destination_folder import DestinationFolder

Commit = Callable[[list[Landed]], None]


class Writers:
    """Makes the writers of a rank, one for each thread, and knows how much they have taken."""

    def __init__(self, make: Callable[[], PieceWriter]) -> None:
        self._make = make
        self._made: list[PieceWriter] = []

    def __call__(self) -> PieceWriter:
        """Another writer."""
        writer = self._make()
        self._made.append(writer)
        return writer

    def refuse_less(self, planned: int, destination: Path) -> None:
        """Raise ``DataError`` unless so many slices have ended in the writers: no file may be lost in silence."""
        taken = sum(writer.slices for writer in self._made)
        if taken != planned:
            problem = f"received {taken} parts of files where a rank should write {planned}"
            raise DataError(destination, problem, "this is an error of the staging: report it, and stage again")


class PieceWriter:
    """Takes the pieces of one stream in order. ``wanted`` says which entries this node lacks; others are skipped.

    Entries with a known checksum are compared with it. ``root`` is where the entries are, for errors to name them in
    full. Cut entries go to ``shared``, and land when that is settled. Used by one thread.
    """

    def __init__(
        self,
        listing: Listing,
        wanted: NDArray[np.bool_],
        make: SinkMaker,
        destination: DestinationFolder,
        commit: Commit,
        root: Path = Path(),
        shared: SharedFiles | None = None,
    ) -> None:
        self.counters = Counters()
        self.slices = 0
        """Slices of wanted entries that have ended."""
        self._listing = listing
        self._wanted = wanted
        self._make = make
        self._destination = destination
        self._commit = commit
        self._root = root
        self._shared = shared
        self._write_whole = make.write_whole if isinstance(make, FileSinkMaker) else None
        self._is_checked = bool((listing.checksums != UNKNOWN).any())
        self._sink: Sink | None = None
        self._checksum = 0

    def write(self, piece: Piece, data: memoryview) -> None:
        """Write the bytes of ``piece``."""
        position = 0
        landed: list[Landed] = []
        for fragment in piece.fragments:
            part = data[position : position + fragment.stop - fragment.start]
            position += len(part)
            if not self._wanted[fragment.entry]:
                continue
            self.slices += fragment.ends_slice
            try:
                landed += self._take(fragment, part)
            except DataError as error:
                if Path(str(error.path)).is_absolute():
                    raise
                raise self._in_full(fragment.entry, error) from error
        if landed:
            self._count(landed)
            self._commit(landed)

    def abandon(self) -> None:
        """Remove what is unfinished."""
        if self._sink is not None:
            self._sink.abandon()
            self._sink = None

    def _take(self, fragment: Fragment, part: memoryview) -> list[Landed]:
        """Write a part of an entry; returns what landed with it."""
        if fragment.of is not None:
            assert self._shared is not None
            self._shared.write(fragment.entry, fragment.start, part)
            self.counters.bytes_landed += len(part)
            return []
        if self._write_whole is not None and fragment.is_whole:
            return [self._land(fragment.entry, part)]
        if fragment.is_first:
            self._open(fragment.entry)
        assert self._sink is not None
        self._sink.write(part)
        self._check(fragment.entry, part, fragment.is_first, fragment.is_last)
        if not fragment.is_last:
            return []
        landed = self._sink.close()
        self._sink = None
        if self._write_whole is not None:
            return landed
        return [replace(file, source_size=fragment.size) for file in landed]

    def _in_full(self, entry: int, error: DataError) -> DataError:
        """``error`` of a check or a transform, which names an entry or what it became, with the entry's full path."""
        name = self._listing.names[entry]
        problem = error.problem if str(error.path) == name else f"{error.path}: {error.problem}"
        return DataError(self._root / name, problem, error.change)

    def _open(self, entry: int) -> None:
        size, time_ns = int(self._listing.sizes[entry]), int(self._listing.mtimes_ns[entry])
        self._sink = self._make(self._destination, self._listing.names[entry], size, time_ns)

    def _land(self, entry: int, data: memoryview) -> Landed:
        """Write a file that is there in one piece."""
        assert self._write_whole is not None
        self._check(entry, data, first=True, last=True)
        name = self._listing.names[entry]
        return self._write_whole(self._destination, name, data, int(self._listing.mtimes_ns[entry]))

    def _check(self, entry: int, part: memoryview, first: bool, last: bool) -> None:
        if not self._is_checked:
            return
        expected = int(self._listing.checksums[entry])
        if expected == UNKNOWN:
            return
        self._checksum = crc32c(part, 0 if first else self._checksum)
        if last and self._checksum != expected:
            raise DataError(
                self._listing.names[entry],
                f"has CRC32C {self._checksum:08x} where the index says {expected:08x}: it was damaged or written to",
                "copy the file again, or make the index again with `hpcbench data index`",
            )

    def _count(self, landed: list[Landed]) -> None:
        self.counters.files_landed += len(landed)
        self.counters.bytes_landed += sum(file.size for file in landed)
        self.counters.metadata_operations += 3 * len(landed)
