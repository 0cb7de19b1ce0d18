"""What a manifest says has landed: compact columns for millions of files."""

from __future__ import annotations

import stat
from array import array
from collections.abc import Iterator
from os import lstat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staging.lines import read_lines
from staging.listing import Listing
from staging.sinks import Landed


class Records:
    """Files that landed, one per name; where a name comes twice, what was said last holds."""

    def __init__(self) -> None:
        self.sizes = array("q")
        """Bytes of each file, in the order of ``position``."""
        self.position: dict[str, int] = {}
        """Where a name stands in the columns."""
        self._sources: list[str] = []
        self._checksums = array("q")
        self._mtimes_ns = array("q")
        self._files_of_source = array("q")

    @classmethod
    def read(cls, path: Path) -> Records:
        """The records of the manifest at ``path``; torn and malformed lines are left out."""
        records = cls()
        for item in read_lines(path):
            records._add(item)
        return records

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Landed]:
        return (self._landed(name, position) for name, position in self.position.items())

    def __contains__(self, name: str) -> bool:
        return name in self.position

    def __getitem__(self, name: str) -> Landed:
        return self._landed(name, self.position[name])

    def complete(self, listing: Listing, entries: NDArray[np.int64], destination: Path) -> NDArray[np.bool_]:
        """Which of ``entries`` need not be moved again: one truth value for each.

        An entry is complete when every file that came from it is named with the entry's modification time, and lies
        below ``destination`` with its size.
        """
        order = {listing.names[int(entry)]: at for at, entry in enumerate(entries)}
        mtimes_ns = listing.mtimes_ns[entries]
        promised = np.zeros(len(entries), np.int64)
        found = np.zeros(len(entries), np.int64)
        for name, position in self.position.items():
            at = order.get(self._sources[position])
            if at is not None and self._mtimes_ns[position] == mtimes_ns[at]:
                promised[at] = self._files_of_source[position]
                found[at] += has_size(destination / name, self.sizes[position])
        whole: NDArray[np.bool_] = (found == promised) & (found > 0)
        return whole

    def _landed(self, name: str, position: int) -> Landed:
        numbers = (self.sizes[position], self._checksums[position])
        return Landed(name, *numbers, self._sources[position], self._mtimes_ns[position])

    def _add(self, item: dict[str, Any]) -> None:
        try:
            name, source = item["name"], item["source"]
            numbers = (int(item["size"]), int(item["crc32c"]), int(item["mtime_ns"]), int(item.get("of", 1)))
        except (KeyError, TypeError, ValueError):
            return
        if not isinstance(name, str) or not isinstance(source, str):
            return
        columns = (self.sizes, self._checksums, self._mtimes_ns, self._files_of_source)
        source = name if source == name else source  # one string in memory, not two
        position = self.position.setdefault(name, len(self.sizes))
        if position == len(self.sizes):
            self._sources.append(source)
            for column, number in zip(columns, numbers, strict=True):
                column.append(number)
        else:
            self._sources[position] = source
            for column, number in zip(columns, numbers, strict=True):
                column[position] = number


def has_size(path: Path, size: int) -> bool:
    """Whether ``path`` is a file, and no link, of ``size`` bytes."""
    try:
        status = lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size
