"""Makes the index of a dataset: reads every file once and notes its checksum."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from staging.checksums import crc32c
from staging.errors import DataError
from staging.formats.regular import open_regular
from staging.print_line import print_line
from staging.progress import Progress
from staging.ranks.world import Alone
from staging.source.index import refuse_existing, write_index
from staging.source.listing import INDEX_NAME, Listing
from staging.source.walk import list_tree
from staging.threads.adaptive_pool import are_small, map_in_threads
from staging.units import counted

BUFFER_BYTES = 1 << 20
BLOCK = 32
"""Files that a thread reads in one go."""


def index_dataset(root: Path, out: Path | None = None, threads: int | None = None) -> str:
    """Index the files below ``root`` in ``out``, by default ``dataset.index`` in ``root``; returns what was done."""
    path = out or root / INDEX_NAME
    refuse_existing(path)  # before everything is read, which may take hours
    listing = make_index(root, threads)
    write_index(path, listing)
    return f"{path}: {counted(len(listing), 'file')}, {counted(listing.bytes, 'byte')}"


def make_index(root: Path, threads: int | None = None, *, show: bool = True) -> Listing:
    """All files below ``root`` with the CRC32C of their content, read by ``threads`` (default: the allowed cores).

    ``show`` says how far it is and, as a staging does, what is left out: links to folders and hidden names. Raises
    ``DataError`` for what ``list_tree`` refuses, and for a file that changes or can't be read. Threads are enough,
    since reading and checksums run outside Python's lock.
    """
    walked = list_tree(root, Alone())
    listing = walked.listing
    if show and walked.skipped:
        print_line(walked.skipped)
    threads = threads or len(os.sched_getaffinity(0))
    starts = range(0, len(listing), BLOCK)
    with Progress(len(listing), "index", "files", enabled=show) as progress:

        def read(start: int) -> list[int]:
            block = _checksums(root, listing, start)
            progress.advance(len(block))
            return block

        blocks = map_in_threads(read, starts, threads, at_once=not are_small(listing.bytes, len(listing)))
    checksums = np.array([checksum for block in blocks for checksum in block], np.int64)
    return Listing(listing.names, listing.sizes, listing.mtimes_ns, checksums)


def _checksums(root: Path, listing: Listing, start: int) -> list[int]:
    """Checksums of the files from number ``start`` on."""
    stop = min(start + BLOCK, len(listing))
    buffer = memoryview(bytearray(min(BUFFER_BYTES, int(listing.sizes[start:stop].max()) + 1)))
    return [
        _checksum(listing.path(root, entry), int(listing.sizes[entry]), int(listing.mtimes_ns[entry]), buffer)
        for entry in range(start, stop)
    ]


def _checksum(path: Path, size: int, mtime_ns: int, buffer: memoryview) -> int:
    """CRC32C of a file, read through ``buffer``."""
    checksum = done = 0
    try:
        with open_regular(path) as file:
            while count := file.readinto(buffer):
                checksum = crc32c(buffer[:count], checksum)
                done += count
            status = os.fstat(file.fileno())
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", "check the file, and index again") from None
    if (done, status.st_size, status.st_mtime_ns) != (size, size, mtime_ns):
        problem = f"changed while it was indexed ({size} bytes listed, {done} read)"
        raise DataError(path, problem, "index again when nothing writes to it")
    return checksum
