"""What a source holds: a table of files in compact columns, for millions of entries."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from staging.errors import DataError, InputError

MOST_BYTES = 1 << 62
"""The most bytes of all files together; larger sums, in whole blocks, do not fit 64-bit integers."""
TIMES = np.iinfo(np.int64)
"""The range of file times in nanoseconds from 1970: to the year 2262."""
UNKNOWN = -1
"""The checksum of an entry that has none."""
INDEX_NAME = "dataset.index"
"""The index of a dataset, in its root; never a file of the dataset itself."""
BLOCK = 1 << 16
"""How many names are Python objects at a time."""


class Names:
    """Relative file names in one block of bytes: a fifth of the memory of a list of strings."""

    def __init__(self, blob: bytes, ends: NDArray[np.int64]) -> None:
        self.blob = blob
        self.ends = ends

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """The table of ``names``."""
        return cls.packed([name.encode("utf-8", "surrogateescape") for name in names])

    @classmethod
    def packed(cls, names: Sequence[bytes]) -> Names:
        """The table of ``names`` as the filesystem has them."""
        return cls(b"".join(names), np.cumsum([len(name) for name in names], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        start = int(self.ends[index - 1]) if index else 0
        return self.blob[start : int(self.ends[index])].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks():
            for name in block:
                yield name.decode("utf-8", "surrogateescape")

    def blocks(self, size: int = BLOCK) -> Iterator[list[bytes]]:
        """All names in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            ends = self.ends[start : start + size].tolist()
            begins = [int(self.ends[start - 1]) if start else 0, *ends[:-1]]
            yield [self.blob[begin:end] for begin, end in zip(begins, ends, strict=True)]

    def folders(self) -> set[bytes]:
        """The folders that directly hold files of these names, without those above them; not the root."""
        slashes = np.flatnonzero(np.frombuffer(self.blob, np.uint8) == ord("/"))
        before = np.searchsorted(slashes, self.ends)
        last = slashes[before[before > 0] - 1]
        begins = self._begins()[before > 0]
        inside = last >= begins
        return {self.blob[begin:end] for begin, end in zip(begins[inside].tolist(), last[inside].tolist(), strict=True)}

    def take(self, indices: NDArray[np.int64]) -> Names:
        """The names with these numbers, in this order."""
        begins, ends = self._begins()[indices], self.ends[indices]
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return Names(b"".join(self.blob[begin:end] for begin, end in pairs), np.cumsum(ends - begins))

    def _begins(self) -> NDArray[np.int64]:
        return np.concatenate([[0], self.ends[:-1]]) if len(self) else self.ends


@dataclass
class Listing:
    """Files below a source, sorted by name. Arrays have one element per file."""

    names: Names
    sizes: NDArray[np.int64]
    """Bytes."""
    mtimes_ns: NDArray[np.int64]
    """Modification time in nanoseconds since 1970."""
    checksums: NDArray[np.int64]
    """CRC32C of the content; ``UNKNOWN`` if not known."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return int(self.sizes.sum())

    def path(self, root: Path, index: int) -> Path:
        """The path of an entry below ``root``."""
        return root / self.names[index]

    def take(self, indices: NDArray[np.int64]) -> Listing:
        """The entries with these numbers, which must ascend."""
        if len(indices) == len(self):
            return self
        columns = (self.sizes[indices], self.mtimes_ns[indices], self.checksums[indices])
        return Listing(self.names.take(indices), *columns)


def refuse_bytes(place: Path, sizes: NDArray[np.int64]) -> None:
    """Raise ``DataError`` naming ``place`` for files of more than ``MOST_BYTES`` together."""
    if sizes.sum(dtype=np.float64) > MOST_BYTES:
        raise DataError(place, f"lists files of more than {MOST_BYTES} bytes together", "check the sizes of the files")


def refuse_time(path: Path, time_ns: int) -> None:
    """Raise ``DataError`` for a file time that does not fit 64 bits."""
    if not TIMES.min <= time_ns <= TIMES.max:
        problem = f"has the time {time_ns // 10**9} s from 1970, at most {TIMES.max // 10**9} s are kept"
        raise DataError(path, problem, "set its time with `touch`, or exclude the file")


@dataclass(frozen=True)
class Selection:
    """Which files of a source are wanted: shell patterns on relative names, in which ``*`` also matches ``/``."""

    include: tuple[str, ...] = ()
    """A name must match one of these, if there are any."""
    exclude: tuple[str, ...] = ()
    """A name must match none of these."""
    first: int | None = None
    """Only this many of the names that are left, the first in byte order; ``None``: all."""

    def __post_init__(self) -> None:
        if self.first is not None and self.first < 1:
            raise InputError(f"first ({self.first}) must be at least 1; leave it out for all files")

    def matches(self, names: Sequence[bytes]) -> NDArray[np.bool_]:
        """For each name, whether the patterns want it; ``first`` is ignored."""
        wanted = np.ones(len(names), np.bool_)
        texts = [name.decode("utf-8", "surrogateescape") for name in names] if self.include or self.exclude else []
        for patterns, hit in ((self.include, True), (self.exclude, False)):
            if patterns:
                match = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match
                wanted &= np.fromiter(((match(text) is not None) is hit for text in texts), np.bool_, len(texts))
        return wanted

    def of(self, listing: Listing, place: Path) -> Listing:
        """The wanted entries of ``listing``; raises ``DataError`` naming ``place`` if there are none."""
        if self.include or self.exclude:
            wanted = [self.matches(block) for block in listing.names.blocks()]
            listing = listing.take(np.flatnonzero(np.concatenate(wanted)) if wanted else np.arange(0))
        return self.cut(listing, place)

    def cut(self, listing: Listing, place: Path) -> Listing:
        """The ``first`` entries of a listing to which the patterns were applied; raises as ``of`` does."""
        if not len(listing):
            said = [
                f"{word} {' '.join(patterns)}"
                for word, patterns in (("include", self.include), ("exclude", self.exclude))
                if patterns
            ]
            problem = f"holds no file that is left by {' and '.join(said)}" if said else "holds no file"
            raise DataError(place, problem, "change the patterns" if said else "name the folder of a dataset")
        if self.first is None or self.first >= len(listing):
            return listing
        return listing.take(np.arange(self.first))
