"""What files take at a destination beyond their content: manifest, folders, folder entries, other bookkeeping."""

from __future__ import annotations

from pathlib import Path

from staging.checksums import BLOCK_BYTES
from staging.source.listing import Names
from staging.storage.space import block_bytes

LINE = 200
"""The most bytes of a file's line in the manifest and of its entry in a folder, without its name."""
BLOCK_LINE = 8
"""Bytes of a block's checksum in the manifest."""
BOOKS = 12
"""Files and blocks of the bookkeeping besides the manifest and the journal's lines, and unfinished files."""


def overhead(names: Names, content_bytes: int, folder: Path, journal_bytes: int) -> tuple[int, int]:
    """Bytes and files that files of these relative names take below ``folder`` beyond their content.

    The manifest names each file, with its source and a checksum for every block of ``content_bytes``; folders name each
    file, too, and are files themselves. The ranks of a node write ``journal_bytes`` into the journal. ``BOOKS`` allows
    for the other bookkeeping, and for what a filesystem needs to put files in place.
    """
    if not len(names):
        return 0, 0
    block = block_bytes(folder)
    direct = names.folders()
    folders = direct | {above for name in direct for above in parents(name)}
    lines = 3 * len(names.blob) + LINE * len(names) + BLOCK_LINE * (content_bytes // BLOCK_BYTES) + journal_bytes
    return (-(-lines // block) + len(folders) + BOOKS) * block, len(folders) + BOOKS


def parents(name: bytes) -> list[bytes]:
    """The folder of a name, and those above it."""
    folders = []
    while b"/" in name:
        name = name.rpartition(b"/")[0]
        folders.append(name)
    return folders
