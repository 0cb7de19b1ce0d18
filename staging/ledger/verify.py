"""Reads staged files again and compares them with the manifest."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import crc32c

from staging.landing.sinks import Landed
from staging.ledger.manifest import is_inside, load_records
from staging.progress import Progress
from staging.source.listing import UNKNOWN

PIECE_BYTES = 1 << 20


def reread(
    destination: Path, threads: int, progress: Progress | None = None, rank: int = 0, ranks: int = 1
) -> list[str]:
    """A line per file of the manifest that is missing or not what landed, by size and CRC32C; sorted.

    Files come from the disk and not from the page cache, where the system lets go of it. The ``ranks`` processes of
    a node share the files. A file without a checksum is compared by size. Raises ``DataError`` without a manifest.
    """
    records = load_records(destination)
    telling = threading.Lock()

    def check(files: Iterable[Landed]) -> list[str]:
        buffer = memoryview(bytearray(PIECE_BYTES))
        bad = []
        for file in files:
            problem = _problem(destination, file, buffer)
            if problem:
                bad.append(f"{file.name}: {problem}")
            if progress:
                with telling:
                    progress.advance()
        return bad

    step = ranks * threads
    shares = (islice(records, rank + ranks * thread, None, step) for thread in range(threads))
    with ThreadPoolExecutor(threads) as pool:
        return sorted(line for lines in pool.map(check, shares) for line in lines)


def _problem(destination: Path, file: Landed, buffer: memoryview) -> str:
    if not is_inside(destination, file.name):
        return "leads out of the destination, and was not read"
    try:
        size, checksum = _size_and_checksum(destination / file.name, buffer, file.checksum != UNKNOWN)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if size != file.size:
        return f"has {size} bytes where {file.size} landed"
    if checksum != file.checksum:
        return f"has CRC32C {checksum:08x} where {file.checksum:08x} landed"
    return ""


def _size_and_checksum(path: Path, buffer: memoryview, with_checksum: bool) -> tuple[int, int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        if not with_checksum:
            return size, UNKNOWN
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size = checksum = 0
        while count := os.readv(descriptor, [buffer]):
            checksum = crc32c.crc32c(buffer[:count], checksum)
            size += count
        return size, checksum
    finally:
        os.close(descriptor)
