"""The measurements of a probe at the source: reading by threads and block size, looking at and opening files."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from staging.errors import DataError
from staging.probing.probe_sample import Sample
from staging.ranks.world import Place

FEWEST = 32
"""With fewer names than this for each measurement on each rank of a node, all of them take all names."""


def at_once(threads: int, work: Callable[[int], int]) -> tuple[int, float]:
    """Run ``work(number)`` in ``threads`` threads that begin together; returns the sum of the results, and seconds."""
    begin = threading.Barrier(threads)

    def one(number: int) -> tuple[int, float, float]:
        begin.wait()
        start = time.perf_counter()
        return work(number), start, time.perf_counter()

    with ThreadPoolExecutor(threads, "probe") as pool:
        done, starts, ends = zip(*pool.map(one, range(threads)), strict=True)
    return sum(done), max(ends) - min(starts)


def read_rate(sample: Sample, threads: int, block: int, seconds: float, place: Place) -> tuple[float, int]:
    """Bytes per second that this rank reads, block after block, with ``threads`` readers; also the bytes read.

    Each rank begins at another place in the sample. A reader stops after the first block that ends ``seconds`` or more
    after the reader began.
    """
    segments = sample.segments
    first = len(segments) * place.rank // place.size
    turns = itertools.cycle([*segments[first:], *segments[:first]])
    lock = threading.Lock()

    def work(_: int) -> int:
        reader, buffer = sample.source.reader(), memoryview(bytearray(block))
        start, done, elapsed = time.perf_counter(), 0, 0.0
        try:
            while elapsed < seconds:
                with lock:
                    entry, at, stop = next(turns)
                while at < stop and elapsed < seconds:
                    size = min(block, stop - at)
                    reader.read_into(entry, at, buffer[:size])
                    at, done = at + size, done + size
                    if at == stop == sample.source.listing.sizes[entry]:
                        reader.finish(entry)
                    elapsed = time.perf_counter() - start
        finally:
            reader.close()
        return done

    total, took = at_once(threads, work)
    return total / took, total


def share_of(sample: Sample, number: int, measurements: int, place: Place) -> tuple[Sequence[str], str]:
    """The names for measurement ``number`` on this rank, and whether it is the first to look at them (``fresh``).

    A client of a shared filesystem remembers what it has looked at, so ranks of a node and measurements take disjoint
    parts if there are enough names; otherwise they take all (``repeated``).
    """
    names, parts = sample.names, measurements * place.local_size
    if len(names) < FEWEST * parts:
        return names, "repeated"
    part = names[number * place.local_size + place.local_rank :: parts]
    return part, "repeated" if sample.looked_at else "fresh"


def look_rate(root: str, names: Sequence[str], threads: int, seconds: float) -> float:
    """Files per second that this rank looks at with ``stat``; each name at most once."""
    return _each_once(root, names, threads, seconds, os.stat)


def open_rate(root: str, names: Sequence[str], threads: int, seconds: float) -> float:
    """Files per second that this rank opens and closes; each name at most once."""
    return _each_once(root, names, threads, seconds, lambda path: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))


def _each_once(root: str, names: Sequence[str], threads: int, seconds: float, touch: Callable[[str], object]) -> float:
    def work(number: int) -> int:
        start, done = time.perf_counter(), 0
        for name in names[number::threads]:
            try:
                touch(f"{root}/{name}")
            except OSError as error:
                change = "check the source and its permissions"
                raise DataError(f"{root}/{name}", f"cannot be looked at or opened ({error.strerror})", change) from None
            done += 1
            if time.perf_counter() - start >= seconds:
                break
        return done

    total, took = at_once(threads, work)
    return total / took
