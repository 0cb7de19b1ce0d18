"""What a source holds: a table of files in compact columns, for millions of entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1
"""The checksum of an entry that has none."""


class Names:
    """Relative file names in one block of bytes: a fifth of the memory of a list of strings."""

    def __init__(self, blob: bytes, ends: NDArray[np.int64]) -> None:
        self.blob = blob
        self.ends = ends

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """The table of ``names``."""
        encoded = [name.encode("utf-8", "surrogateescape") for name in names]
        return cls(b"".join(encoded), np.cumsum([len(name) for name in encoded], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        start = int(self.ends[index - 1]) if index else 0
        return self.blob[start : int(self.ends[index])].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))


@dataclass
class Listing:
    """Files below a source, sorted by name. Arrays have one element per file."""

    names: Names
    sizes: NDArray[np.int64]
    """Bytes."""
    mtimes_ns: NDArray[np.int64]
    """Modification time in nanoseconds since 1970."""
    checksums: NDArray[np.int64]
    """CRC32C of the content, ``UNKNOWN`` where it is not known."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return int(self.sizes.sum())

    def path(self, root: Path, index: int) -> Path:
        """Where an entry lies below ``root``."""
        return root / self.names[index]
