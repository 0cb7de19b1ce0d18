"""What the members of archives take at a destination beyond the bytes of their archives, by the headers of one."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from staging.errors import DataError
from staging.formats.regular import opened
from staging.formats.tar import BLOCK, FILES
from staging.landing.sinks import Landed
from staging.landing.tar import archive_kind
from staging.landing.transform.streaming import DecompressSink
from staging.landing.transform_exclusions import matcher
from staging.options import StageOptions
from staging.planning.overhead import LINE
from staging.source.listing import Listing

HEADERS = 100_000
"""The most headers to look at."""
HEAD_BYTES = 1 << 20
"""Bytes of a compressed archive to decompress, and of what becomes of them."""


@dataclass(frozen=True)
class Members:
    """The first members of an archive, of which they take ``tar_bytes`` once it is decompressed."""

    tar_bytes: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    is_all: bool
    """Whether the archive has no others."""

    def beyond(self, tar_bytes: int, block: int) -> tuple[int, int]:
        """Bytes and files that ``tar_bytes`` of archives take beyond these bytes, in blocks of ``block`` bytes.

        They are presumed to be like this one if all of it is known. Otherwise what is known of it is all that is
        counted: the members that follow may be larger, and what fits must not be refused.
        """
        folders = len({name.rpartition("/")[0] for name in self.names})
        blocks = folders + sum(-(-size // block) for size in self.sizes)
        lines = sum(3 * len(name) + LINE for name in self.names)
        share = tar_bytes / self.tar_bytes if self.is_all else 1.0
        more = max(0, blocks * block + lines - self.tar_bytes)
        return int(share * more), int(share * (folders + len(self.names)))


def archives_of(listing: Listing, options: StageOptions) -> list[int]:
    """Entries that are extracted as they arrive; none for another transform, or where one follows."""
    if options.transform.partition(":")[0] != "untar" or "+" in options.transform:
        return []
    is_plain = matcher(options.plain, options.transform)
    return [n for n, name in enumerate(listing.names) if archive_kind(name) is not None and not is_plain(name)]


def look_into(path: Path) -> Members | None:
    """The first members of an archive; ``None`` if they cannot be told, which is left to the move to report."""
    kind, head = archive_kind(path.name), _Head()
    try:
        with opened(path) as file:
            if not kind:
                size = os.fstat(file.fileno()).st_size
                return _members(lambda at: os.pread(file.fileno(), BLOCK, at) if at < size else b"")
            DecompressSink(kind, path.name, head).write(memoryview(file.read(HEAD_BYTES)))
    except (OSError, DataError, _EnoughError):
        pass
    return _members(lambda at: bytes(head.data[at : at + BLOCK]))


def _members(read: Callable[[int], bytes]) -> Members | None:
    at, names, sizes, block = 0, list[str](), list[int](), read(0)
    while len(names) < HEADERS and any(block):
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError:  # cut off, or damaged, which the move reports
            break
        at += BLOCK + max(header.size, 0) + -max(header.size, 0) % BLOCK
        if header.type in FILES:
            names.append(header.name)
            sizes.append(max(header.size, 0))
        block = read(at)
    is_all = len(block) == BLOCK and not any(block)  # zeros are the end
    return Members(at, tuple(names), tuple(sizes), is_all) if names else None


class _EnoughError(Exception):
    """The head is full."""


class _Head:
    """A sink that keeps the first bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: memoryview) -> None:
        """Keep them."""
        self.data += data
        if len(self.data) >= HEAD_BYTES:
            raise _EnoughError

    def close(self) -> list[Landed]:
        """Nothing lands."""
        return []

    def abandon(self) -> None:
        """Nothing is there."""
