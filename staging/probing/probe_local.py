"""The measurements of a probe within a node: writing to its storage, making small files, checksums and gunzip."""

from __future__ import annotations

import itertools
import os
import time

from staging.checksums import crc32c
from staging.errors import DataError
from staging.formats.compression import gunzip
from staging.formats.regular import MOST_BYTES
from staging.landing.file_sink import FileSinkMaker
from staging.ledger.durable_batch import sync_filesystem
from staging.options import StageOptions
from staging.probing.probe_sample import Sample
from staging.probing.probe_source import at_once
from staging.ranks.collective_errors import together
from staging.ranks.world import Place, World
from staging.source.listing import UNKNOWN
from staging.storage.destination_folder import DestinationFolder
from staging.storage.space import free_bytes
from staging.storage.write_ways import WriteWay

TRIAL = 16 << 20
"""Bytes per node of the first trial, which shows how much the disk takes in the available time."""
LARGEST = 2 << 30
"""The most bytes per node of the real measurement."""
FREE_SHARE = 8
"""A probe uses at most one part in this many of the free space."""
SMALL_FILES = 4096
"""The most files of each thread."""


def write_rates(
    folder: DestinationFolder, options: StageOptions, world: World, seconds: float, way: WriteWay
) -> tuple[float, float]:
    """Bytes per second that this rank writes, ``options.threads`` files at once: without and with a final syncfs.

    The files are removed. Raises ``DataError`` on all ranks if a disk is full. Collective: all ranks write at once.
    """
    place = world.place
    room = free_bytes(folder.path) // FREE_SHARE // place.local_size // options.threads
    together(world, lambda: sync_filesystem(folder.path))  # so that the measurement waits for no earlier writes
    size = min(room, TRIAL // place.local_size // options.threads)
    trial = _write(folder, options, world, size, way)
    most = min(trial[1] * seconds, LARGEST / place.local_size)
    return _write(folder, options, world, min(room, max(size, int(most / options.threads))), way)


def create_rate(folder: DestinationFolder, threads: int, size: int, seconds: float, place: Place) -> float:
    """Files of ``size`` bytes per second that this rank makes, each under a temporary name and then renamed."""
    make, data = FileSinkMaker(checksum=False), memoryview(bytearray(size))

    def work(number: int) -> int:
        start, made = time.perf_counter(), 0
        while made < SMALL_FILES and (time.perf_counter() - start < seconds or not made):
            make.write_whole(opened, f"{place.rank}.{number}/{made}", data, 0)
            made += 1
        return made

    with folder.below("") as opened:
        total, took = at_once(threads, work)
    return total / took


def crc32c_rate(threads: int, block: int, seconds: float) -> float:
    """Bytes per second that this rank computes checksums of."""
    data = os.urandom(block)  # zeros would share one page, and come from the nearest cache

    def work(_: int) -> int:
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            crc32c(data)
            done += block
        return done

    total, took = at_once(threads, work)
    return total / took


def gunzip_rate(sample: Sample, threads: int, seconds: float) -> float:
    """Decompressed bytes per second of this rank, from real files of the source, held in memory."""
    try:
        packed = [(path, path.read_bytes()) for path in sample.gzip]
    except OSError as error:
        raise DataError(error.filename, f"cannot be read ({error.strerror})", "check the source") from None

    def work(number: int) -> int:
        start, done = time.perf_counter(), 0
        for path, data in itertools.islice(itertools.cycle(packed), number, None):
            done += len(gunzip(data, path, MOST_BYTES))
            if time.perf_counter() - start >= seconds:
                break
        return done

    total, took = at_once(threads, work)
    return total / took


def _write(
    folder: DestinationFolder, options: StageOptions, world: World, size: int, way: WriteWay
) -> tuple[float, float]:
    """Write ``size`` bytes with each thread; bytes per second until handed over, and until flushed."""
    make = FileSinkMaker(checksum=False)
    block = memoryview(os.urandom(min(options.piece_bytes, max(size, 1))))
    names = [f"{world.place.rank}.{number}.large" for number in range(options.threads)]

    def work(number: int) -> int:
        sink = make(opened, names[number], UNKNOWN, 0)
        for at in range(0, size, len(block)):
            sink.write(block[: size - at])
        sink.close()
        return size

    def flush() -> float:
        start = time.perf_counter()
        sync_filesystem(folder.path)
        return time.perf_counter() - start

    world.barrier()
    with folder.below("", way=way) as opened:
        total, written_s = together(world, lambda: at_once(options.threads, work))
    flushed_s = written_s + together(world, flush)
    for name in names:
        folder.unlink(name)
    return total / written_s, total / flushed_s
