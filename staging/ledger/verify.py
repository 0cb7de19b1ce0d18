"""Reads staged files again and compares them with the manifest."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from staging.checksums import crc32c
from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.ledger.manifest import is_inside, load_records
from staging.progress import Progress
from staging.source.listing import UNKNOWN
from staging.storage.destination_folder import DestinationFolder
from staging.threads.adaptive_pool import are_small, run_in_threads
from staging.threads.channel import Failure

PIECE_BYTES = 1 << 20


@dataclass(frozen=True, order=True)
class BadFile:
    """A file that is not what the manifest says."""

    name: str
    """Relative to the destination."""
    problem: str
    """What is wrong with it, in words that follow its name."""


@dataclass(frozen=True)
class Verified:
    """What was read again."""

    files: int = 0
    """Files looked at."""
    bytes: int = 0
    """Bytes read."""
    unchecked: int = 0
    """Files whose contents can't be judged: they landed with ``verify`` none, without a checksum."""
    bad: tuple[BadFile, ...] = ()
    """Sorted by name."""


def reread(
    destination: Path, threads: int, progress: Progress | None = None, rank: int = 0, ranks: int = 1
) -> Verified:
    """Compare the files of the manifest with what landed, by size and CRC32C.

    Files come from the disk and not from the page cache, if the system drops them from it. The ``ranks`` processes of
    a node share the files; each checks its own. A file without a checksum is compared by size. Raises ``DataError``
    without a manifest.
    """
    records = load_records(destination)
    names = list(islice(records.position, rank, None, ranks))
    numbers, verified, failure = itertools.count(), list[Verified](), Failure()

    def work() -> None:
        buffer = memoryview(bytearray(PIECE_BYTES))
        count = size = unchecked = 0
        bad = []
        while failure.error is None and (number := next(numbers)) < len(names):
            file = records[names[number]]
            problem, read = _problem(folder, file, buffer)
            count, size, unchecked = count + 1, size + read, unchecked + (file.checksum == UNKNOWN)
            if problem:
                bad.append(BadFile(file.name, problem))
            if progress:
                progress.advance()
        verified.append(Verified(count, size, unchecked, tuple(bad)))

    at_once = not are_small(sum(map(records.size, names)), len(names))
    with DestinationFolder(destination) as folder:
        run_in_threads(work, max(1, min(threads, len(names))), failure, at_once=at_once)
    return in_all(verified)


def in_all(parts: Sequence[Verified]) -> Verified:
    """The findings of several parts together."""
    return Verified(
        sum(part.files for part in parts),
        sum(part.bytes for part in parts),
        sum(part.unchecked for part in parts),
        tuple(sorted(file for part in parts for file in part.bad)),
    )


def _problem(folder: DestinationFolder, file: Landed, buffer: memoryview) -> tuple[str, int]:
    """What is wrong with a file, if anything, and how many bytes of it were read."""
    if not is_inside(folder.path, file.name):
        return "leads out of the destination, and was not read", 0
    try:
        # a pipe in the place of the file would keep an ordinary open waiting
        descriptor = folder.open(file.name, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return _difference(descriptor, file, buffer)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return "is not there", 0
    except OSError as error:
        return f"cannot be read ({error.strerror})", 0
    except DataError as error:
        return error.problem, 0


def _difference(descriptor: int, file: Landed, buffer: memoryview) -> tuple[str, int]:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "is no file", 0
    if status.st_size != file.size:
        return f"has {status.st_size} bytes where {file.size} landed", 0
    if file.checksum == UNKNOWN:
        return "", 0
    size, checksum = _size_and_checksum(descriptor, buffer)
    same = (size, checksum) == (file.size, file.checksum)
    return "" if same else f"has CRC32C {checksum:08x} where {file.checksum:08x} landed", size


def _size_and_checksum(descriptor: int, buffer: memoryview) -> tuple[int, int]:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    size = checksum = 0
    while count := os.readv(descriptor, [buffer]):
        checksum = crc32c(buffer[:count], checksum)
        size += count
    return size, checksum
