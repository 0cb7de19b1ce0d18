"""The direct path: each node itself reads what lands on it, with several streams at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

from staging.counters import Counters
from staging.moving.streams import Piece, Stream, fill, parts
from staging.moving.writing import PieceWriter
from staging.source.sources import Reader, Source
from staging.threads.adaptive_pool import are_small, run_in_threads
from staging.threads.channel import Channel, Failure, joined
from staging.threads.worker import Worker

LARGE_BYTES = 16 << 20
"""From this mean file size on, an extra thread for each file is worth its queue and its buffers."""

BLOCK_BYTES = 2 << 20
"""A thread that alternates reads and writes takes this much of a large file at a time, which stays in its cache."""


def move_directly(
    source: Source,
    stream: Stream,
    make_writer: Callable[[], PieceWriter],
    threads: int,
    queue_pieces: int,
    *,
    transforms: bool = False,
) -> Counters:
    """Read and write the entries of ``stream`` with at most ``threads`` workers; returns their counters, added up.

    ``transforms`` says that the writers compute. The first error of a worker ends all workers and is raised.
    """
    failure = Failure()
    jobs = Jobs(stream.pieces())
    work = overlapped if is_for_pairs(stream, threads) else inline
    total, lock = Counters(), threading.Lock()

    def worker() -> None:
        writer = make_writer()
        try:
            with closing(source.reader()) as reader:
                counters = work(jobs, reader, writer, stream.piece_bytes, queue_pieces, failure)
        except BaseException as error:
            failure.fail(error)
            return
        finally:
            writer.abandon()  # what is unfinished, also if another thread failed
        with lock:
            for part in (counters, reader.counters, writer.counters):
                total.add(part)

    at_once = transforms or not are_small(stream.bytes, len(stream.slices))
    run_in_threads(worker, max(1, min(threads, stream.jobs)), failure, at_once=at_once)
    return total


def is_for_pairs(stream: Stream, threads: int) -> bool:
    """Whether each writing thread gets a second thread that reads: if files are large, and fewer than threads.

    With more files, reading one overlaps writing others anyway; 1 GiB in 4 files then takes 0.65 s of
    processor time, and 0.98 s in pairs, whose buffers do not stay in the cache.
    """
    files = stream.jobs
    return 0 < files < threads and stream.bytes / files >= LARGE_BYTES


class Jobs:
    """Hands out runs of pieces, one at a time: all pieces of an entry together, so that one thread writes it.

    The pieces of an entry that several ranks share are handed out one by one.
    """

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[list[Piece]]:
        while run := self._next():
            yield run

    def _next(self) -> list[Piece]:
        with self._lock:
            run: list[Piece] = []
            for piece in self._pieces:
                run.append(piece)
                if piece.ends_job:
                    break
            return run


def inline(
    jobs: Jobs, reader: Reader, writer: PieceWriter, piece_bytes: int, queue_pieces: int, failure: Failure
) -> Counters:
    """Alternate reads and writes in one thread."""
    counters, buffer = Counters(), memoryview(bytearray(piece_bytes))
    for run in jobs:
        for block in (block for piece in run for block in blocks(piece)):
            if failure.error is not None:
                return counters
            with counters.timed("read_s"):
                data = fill(reader, block, buffer)
            with counters.timed("write_s"):
                writer.write(block, data)
    return counters


def blocks(piece: Piece) -> Iterator[Piece]:
    """The piece itself if it holds several files, or a whole one, else its parts of at most ``BLOCK_BYTES``."""
    first, *others = piece.fragments
    if others or first.is_whole or piece.bytes <= BLOCK_BYTES:
        yield piece
        return
    for start, stop in parts(first.start, first.stop, BLOCK_BYTES):
        yield Piece([first._replace(start=start, stop=stop)], stop - start)


def overlapped(
    jobs: Jobs, reader: Reader, writer: PieceWriter, piece_bytes: int, queue_pieces: int, failure: Failure
) -> Counters:
    """Read in a separate thread while this one writes; pieces wait in a bounded queue between them."""
    full: Channel[tuple[Piece, memoryview, memoryview]] = Channel(queue_pieces, failure)
    empty: Channel[memoryview] = Channel(queue_pieces + 2, failure)
    for _ in range(queue_pieces + 2):
        empty.put(memoryview(bytearray(piece_bytes)))
    reading, counters = Counters(), Counters()

    def read() -> None:
        try:
            for run in jobs:
                for piece in run:
                    buffer = empty.get()
                    assert buffer is not None
                    with reading.timed("read_s"):
                        data = fill(reader, piece, buffer)
                    full.put((piece, data, buffer))
            full.close()
        except BaseException as error:
            failure.fail(error)

    thread = Worker(read, "stage-read")
    thread.start()
    try:
        with joined([thread], failure):
            for piece, data, buffer in full:
                with counters.timed("write_s"):
                    writer.write(piece, data)
                empty.put(buffer)
    finally:
        full.clear()
        empty.clear()
    counters.add(reading)
    counters.read_stalled_s += empty.get_stalled_s + full.put_stalled_s
    counters.write_stalled_s += full.get_stalled_s
    return counters
