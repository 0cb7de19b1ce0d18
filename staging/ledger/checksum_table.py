"""The checksums of files in a manifest: a few columns for millions of files, cheap to send to a process."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from staging.checksums import BLOCK_BYTES, inner_blocks
from staging.ledger.records import Records
from staging.source.listing import UNKNOWN


@dataclass(frozen=True)
class FileChecksums:
    """What landed as one file."""

    size: int
    """Bytes."""
    crc: int
    """CRC32C of the file."""
    blocks: NDArray[np.uint32]
    """CRC32C of every prefix of whole blocks; empty if the manifest has none."""
    first: int
    """The number of its first block among the blocks of all files."""

    @property
    def count(self) -> int:
        """Blocks, the last of which may be short; one if the file is empty or can be checked only as a whole."""
        return len(self.blocks) + 1 if self.in_parts else 1

    @property
    def in_parts(self) -> bool:
        """Whether parts can be checked, and not only the file as a whole."""
        return len(self.blocks) == inner_blocks(self.size)

    def before(self, block: int) -> int:
        """CRC32C of everything before ``block``."""
        return int(self.blocks[block - 1]) if block else 0

    def up_to(self, block: int) -> int:
        """CRC32C of everything up to the end of ``block``."""
        return int(self.blocks[block]) if block < len(self.blocks) else self.crc


class ChecksumTable:
    """Checksums by name, for the files of ``records`` that have one; about 40 bytes each, and 16 for each MiB.

    It keeps 64-bit hashes of the names. If two names share a hash, which takes billions of files, neither is found.
    """

    def __init__(self, records: Records) -> None:
        columns = records.columns()
        keys = np.fromiter(map(_key, records.position), np.uint64, len(records))
        order = np.argsort(keys)
        same = keys[order][1:] == keys[order][:-1]
        unique = ~(np.append(same, False) | np.append(False, same))
        order = order[unique & (columns.checksums[order] != UNKNOWN)]
        self._keys = keys[order]
        self._sizes, self._checksums = columns.sizes[order], columns.checksums[order]
        self._extents, self._blocks = columns.extents[order], columns.blocks
        counts = self._counts()
        self._first = np.cumsum(counts) - counts
        self.all_blocks = int(counts.sum())
        """Parts of all files that can be checked alone: no more than the manifest has checksums, whatever it claims."""

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, name: str) -> FileChecksums | None:
        """The checksums of a file; ``None`` if the manifest has none of it."""
        key = np.uint64(_key(name))
        place = int(np.searchsorted(self._keys, key))
        if place == len(self._keys) or self._keys[place] != key:
            return None
        start, stop = self._extents[place].tolist()
        blocks = self._blocks[start:stop]
        size, crc = int(self._sizes[place]), int(self._checksums[place])
        return FileChecksums(size, crc, blocks, int(self._first[place]))

    def _counts(self) -> NDArray[np.int64]:
        """``FileChecksums.count`` of each."""
        given = self._extents[:, 1] - self._extents[:, 0]
        counts: NDArray[np.int64] = np.where(given == np.maximum(self._sizes - 1, 0) // BLOCK_BYTES, given + 1, 1)
        return counts


def _key(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
