"""The exchange path: every byte is read from the source once in the whole job, and travels between nodes by MPI.

Nodes exchange along lanes: rank ``l`` of each node with rank ``l`` of the others, so no byte travels twice to a node.
All ranks compute the same pieces from the plan, so nothing has to be announced before it is sent.

- Replicated entries go round a ring (as in a ring all-gather): in each step a rank passes on the piece that it got in
  the step before, so that every rank sends and receives at once and holds only a few pieces, for any number of nodes.
- Entries with one home go there in pairs: in round ``s`` node ``n`` sends to ``n + s`` and receives from ``n - s``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from staging.checksums import crc32c
from staging.counters import Counters
from staging.errors import DataError
from staging.moving.streams import Piece, Stream, fill
from staging.moving.writing import PieceWriter
from staging.planning.plan import EVERY_NODE, Plan
from staging.ranks.world import World
from staging.source.sources import Reader, Source
from staging.threads.channel import Channel, Failure, joined
from staging.threads.worker import Worker

TRAILER = 4
"""Bytes after each piece in transit: its CRC32C."""


class Buffer:
    """Memory for one piece, which returns to its pool when all its holders have released it."""

    def __init__(self, piece_bytes: int, pool: Channel[Buffer]) -> None:
        self.memory = memoryview(bytearray(piece_bytes + TRAILER))
        self._pool = pool
        self._holders = 0
        self._lock = threading.Lock()

    def hold(self) -> Buffer:
        """Add a holder."""
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> None:
        """Remove a holder; the last one returns the memory."""
        with self._lock:
            self._holders -= 1
            free = self._holders == 0
        if free:
            self._pool.put(self)


@dataclass
class Filled:
    """A piece with its bytes, and the node whose stream it is from."""

    origin: int
    piece: Piece
    buffer: Buffer


@dataclass
class Lane:
    """One rank's part in the exchange: who its partners are, and what travels between them."""

    world: World
    plan: Plan
    partners: list[int]
    """The rank of this lane on each node."""
    numbers: NDArray[np.int64]
    """The plan's slices on this lane that some node lacks, in the order in which they travel."""
    piece_bytes: int

    def __post_init__(self) -> None:
        self._origins = self.plan.reading_node[self.numbers]
        self._homes = self.plan.home[self.plan.slices.entry[self.numbers]]

    @property
    def node(self) -> int:
        """This rank's node."""
        return self.world.place.node

    def stream(self, origin: int, home: int) -> Stream:
        """What ``origin`` reads on this lane for node ``home``, or for ``EVERY_NODE``."""
        numbers = self.numbers[(self._origins == origin) & (self._homes == home)]
        return Stream(self.plan.slices.take(numbers), self.piece_bytes)


def move_by_exchange(
    lane: Lane,
    source: Source,
    make_writer: Callable[[], PieceWriter],
    writers: int,
    queue_pieces: int,
    *,
    checked: bool,
) -> Counters:
    """Read this rank's part, pass pieces around, and write what lands here with ``writers`` threads.

    Memory: ``queue_pieces + 2 + writers * 2`` pieces. Collective over the lane. The first error of a thread is raised.
    """
    failure, counters = Failure(), Counters()
    number = queue_pieces + 2 + 2 * writers
    pool: Channel[Buffer] = Channel(number, failure)
    for _ in range(number):
        pool.put(Buffer(lane.piece_bytes, pool))
    read: Channel[Filled] = Channel(queue_pieces, failure)
    reader = source.reader()
    landing = Landing(make_writer, writers, failure)
    reading = Worker(partial(read_all, lane, reader, read, pool, failure, counters, checked), "stage-read")
    threads = [reading, *landing.threads]
    try:
        with joined(threads, failure):
            for thread in threads:
                thread.start()
            Exchange(lane, read, pool, landing, counters, checked).run()
            landing.finish()
    finally:
        failure.clear_channels()
        if reading.wait(0):  # else it hangs in a system call on the file that this would close
            reader.close()
    landing.add_up()
    for part in (reader.counters, landing.counters):
        counters.add(part)
    counters.read_stalled_s = read.put_stalled_s
    return counters


def own_pieces(lane: Lane) -> Iterator[tuple[int, Piece]]:
    """What this rank reads, in the order in which it travels: home and piece."""
    nodes = lane.plan.nodes
    yield from ((EVERY_NODE, piece) for piece in lane.stream(lane.node, EVERY_NODE).pieces())
    for shift in range(nodes):
        home = (lane.node + shift) % nodes
        yield from ((home, piece) for piece in lane.stream(lane.node, home).pieces())


def read_all(
    lane: Lane,
    reader: Reader,
    read: Channel[Filled],
    pool: Channel[Buffer],
    failure: Failure,
    counters: Counters,
    checked: bool,
) -> None:
    """The reading thread."""
    try:
        for _, piece in own_pieces(lane):
            buffer = pool.get()
            assert buffer is not None
            with counters.timed("read_s"):
                data = fill(reader, piece, buffer.memory)
                seal(buffer.memory, len(data), checked)
            read.put(Filled(lane.node, piece, buffer.hold()))
        read.close()
    except BaseException as error:
        failure.fail(error)


def seal(memory: memoryview, size: int, checked: bool) -> None:
    """Put the checksum of the first ``size`` bytes after them."""
    memory[size : size + TRAILER] = (crc32c(memory[:size]) if checked else 0).to_bytes(TRAILER, "little")


class Landing:
    """Threads that write, once they are started; all pieces of one origin go to the same thread, in order."""

    def __init__(self, make_writer: Callable[[], PieceWriter], writers: int, failure: Failure) -> None:
        self.counters = Counters()
        self._failure = failure
        self._make_writer = make_writer
        self._channels: list[Channel[Filled]] = [Channel(2, failure) for _ in range(writers)]
        self._parts: list[Counters] = []
        self.threads = [Worker(partial(self._work, channel), "stage-write") for channel in self._channels]

    def put(self, filled: Filled) -> None:
        """Queue a piece for writing; its buffer is released afterwards."""
        self._channels[filled.origin % len(self._channels)].put(filled)

    def finish(self) -> None:
        """Announce that no more pieces come."""
        for channel in self._channels:
            channel.close()

    def add_up(self) -> None:
        """Add up what the threads did, once they have ended."""
        for part in self._parts:
            self.counters.add(part)
        self.counters.write_stalled_s += sum(channel.get_stalled_s for channel in self._channels)
        self.counters.exchange_stalled_s += sum(channel.put_stalled_s for channel in self._channels)

    def _work(self, channel: Channel[Filled]) -> None:
        writers: dict[int, PieceWriter] = {}
        counters = Counters()
        try:
            for filled in channel:
                writer = writers.get(filled.origin) or writers.setdefault(filled.origin, self._make_writer())
                with counters.timed("write_s"):
                    writer.write(filled.piece, filled.buffer.memory[: filled.piece.bytes])
                filled.buffer.release()
        except BaseException as error:
            self._failure.fail(error)
            for writer in writers.values():
                writer.abandon()
        for writer in writers.values():
            counters.add(writer.counters)
        self._parts.append(counters)


class Exchange:
    """The middle of the pipeline, in the thread that calls MPI."""

    def __init__(
        self,
        lane: Lane,
        read: Channel[Filled],
        pool: Channel[Buffer],
        landing: Landing,
        counters: Counters,
        checked: bool,
    ) -> None:
        self.lane = lane
        self.read = read
        self.pool = pool
        self.landing = landing
        self.counters = counters
        self.checked = checked

    def run(self) -> None:
        """Move everything in the plan."""
        nodes = self.lane.plan.nodes
        self.around_the_ring([self.lane.stream(origin, EVERY_NODE) for origin in range(nodes)])
        for shift in range(nodes):
            to, source = (self.lane.node + shift) % nodes, (self.lane.node - shift) % nodes
            self.in_pairs(self.lane.stream(self.lane.node, to), to, self.lane.stream(source, self.lane.node), source)

    def around_the_ring(self, streams: list[Stream]) -> None:
        """Send every node's pieces to every node, one piece of each at a time."""
        nodes, node = len(streams), self.lane.node
        for pieces in zip_longest(*(stream.pieces() for stream in streams)):
            held: Filled | None = self.take_own(pieces[node])
            for step in range(nodes - 1):
                origin = (node - 1 - step) % nodes
                received = self.swap(held, (node + 1) % nodes, pieces[origin], origin, (node - 1) % nodes)
                if held is not None:
                    held.buffer.release()
                held = received
            if held is not None:
                held.buffer.release()

    def in_pairs(self, outgoing: Stream, to: int, incoming: Stream, source: int) -> None:
        """Send all pieces for ``to`` while those from ``source`` arrive."""
        if to == self.lane.node:
            for piece in outgoing.pieces():
                if (own_piece := self.take_own(piece)) is not None:
                    own_piece.buffer.release()
            return
        for sent, received in zip_longest(outgoing.pieces(), incoming.pieces()):
            going = self.take() if sent is not None else None
            came = self.swap(going, to, received, source, source)
            for filled in (going, came):
                if filled is not None:
                    filled.buffer.release()

    def take_own(self, piece: Piece | None) -> Filled | None:
        """The next piece that this rank read, which also lands here; held once for the caller."""
        if piece is None:
            return None
        filled = self.take()
        filled.buffer.hold()
        self.landing.put(filled)
        return filled

    def take(self) -> Filled:
        """The next piece from the reading thread."""
        with self.counters.timed("exchange_stalled_s"):
            filled = self.read.get()
        assert filled is not None
        return filled

    def swap(self, sent: Filled | None, to: int, piece: Piece | None, origin: int, source: int) -> Filled | None:
        """Send to node ``to`` and receive ``piece`` from node ``source``; it lands here and is held for the caller."""
        size = 0 if piece is None else piece.bytes + TRAILER
        outgoing = None if sent is None else sent.buffer.memory[: sent.piece.bytes + TRAILER]
        buffer = self.free_buffer() if piece is not None else None
        incoming = None if buffer is None else buffer.memory[:size]
        partners = self.lane.partners
        with self.counters.timed("exchange_s"):
            self.lane.world.send_receive(outgoing, partners[to], incoming, partners[source])
        self.counters.bytes_sent += len(outgoing) if outgoing is not None else 0
        self.counters.bytes_received += size
        if piece is None or buffer is None:
            return None
        self.verify(piece, buffer.memory[:size], source)
        filled = Filled(origin, piece, buffer.hold())
        buffer.hold()
        self.landing.put(filled)
        return filled

    def free_buffer(self) -> Buffer:
        """Memory to receive into."""
        with self.counters.timed("exchange_stalled_s"):
            buffer = self.pool.get()
        assert buffer is not None
        return buffer

    def verify(self, piece: Piece, received: memoryview, source: int) -> None:
        """Compare a piece with the checksum after it."""
        if not self.checked:
            return
        expected = int.from_bytes(received[-TRAILER:], "little")
        if (actual := crc32c(received[:-TRAILER])) != expected:
            where = f"from node {source} to node {self.lane.node}"
            names = self.lane.plan.listing.names
            first, others = names[piece.fragments[0].entry], len(piece.fragments) - 1
            raise DataError(
                f"{first} and {others} more files" if others else first,
                f"was damaged on its way {where} (CRC32C {actual:08x}, sent {expected:08x})",
                "check the network, and stage again",
            )
