"""What files take at a destination beside their content: the manifest, folders, entries in folders, other books."""

from __future__ import annotations

from pathlib import Path

from staging.checksums import BLOCK_BYTES
from staging.source.listing import Names
from staging.storage.space import block_bytes

LINE = 200
"""Bytes of a file's line in the manifest and of its entry in a folder, without its name, at most."""
BLOCK_LINE = 8
"""Bytes of a block's checksum in the manifest."""
BOOKS = 12
"""Files and blocks of the bookkeeping beside the manifest, and unfinished files."""


def overhead(names: Names, content_bytes: int, folder: Path) -> tuple[int, int]:
    """Bytes and files that files of these relative names take below ``folder`` beside their content.

    The manifest names each, with its source and a checksum for every block of ``content_bytes``; their folders do, too,
    and are files themselves. ``BOOKS`` are for the other books, and for what a filesystem needs to put files in their
    place.
    """
    if not len(names):
        return 0, 0
    block = block_bytes(folder)
    direct = names.folders()
    folders = direct | {above for name in direct for above in parents(name)}
    lines = 3 * len(names.blob) + LINE * len(names) + BLOCK_LINE * (content_bytes // BLOCK_BYTES)
    return (-(-lines // block) + len(folders) + BOOKS) * block, len(folders) + BOOKS


def parents(name: bytes) -> list[bytes]:
    """The folder of a name, and those above it."""
    found = []
    while b"/" in name:
        name = name.rpartition(b"/")[0]
        found.append(name)
    return found
