"""Measures, within seconds, what the parts of a staging can do here: source, local storage, network, decoding."""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from staging.bookkeeping import BOOKKEEPING
from staging.errors import DataError, InputError
from staging.ledger.destination_lock import lock_destination
from staging.open_source import refuse_absent
from staging.options import StageOptions
from staging.prepare import check_memory, own_destination, settled
from staging.probing.ceilings import Ceilings, Rate, write_ceilings
from staging.probing.probe_local import crc32c_rate, create_rate, gunzip_rate, write_rates
from staging.probing.probe_sample import Sample, take_sample
from staging.probing.probe_source import look_rate, open_rate, read_rate, share_of
from staging.progress import Progress
from staging.ranks.collective_errors import together
from staging.ranks.world import Place, World
from staging.source.page_cache import IoCounters, cache_state
from staging.source.sources import Source
from staging.storage.destination import storage
from staging.storage.destination_folder import DestinationFolder
from staging.storage.space import filesystem_type
from staging.storage.write_ways import WAYS, WriteWay, ways_at

THREADS = (1, 2, 4, 8)
BLOCKS = (256 << 10, 1 << 20, 4 << 20, 8 << 20)
BUDGET_S = 10.0
SMALLEST_BUDGET_S = 0.5
SMALL_FILE = 16 << 10
READ_SHARE, METADATA_SHARE, WRITE_SHARE, CREATE_SHARE, EXCHANGE_SHARE, DECODE_SHARE = 0.5, 0.1, 0.16, 0.06, 0.1, 0.08
"""Parts of the budget; they add up to 1."""


def probe(
    options: StageOptions,
    world: World,
    *,
    budget_s: float = BUDGET_S,
    source: Source | None = None,
    quiet: bool = False,
) -> Ceilings:
    """Measure for about ``budget_s`` seconds, on all ranks at once; returns the rates, the same on all. Collective.

    Reads files of ``options.source`` (or entries of ``source``), after asking the system to drop their cached pages.
    Writes only below the destination's bookkeeping, removes that again, and leaves the result there as ``probe.json``.
    Raises ``InputError`` on all ranks for what ``stage`` refuses, and for a budget below ``SMALLEST_BUDGET_S``.
    """
    if budget_s < SMALLEST_BUDGET_S:
        raise InputError(f"a probe of {budget_s} s is too short to tell anything; give at least {SMALLEST_BUDGET_S}")
    start = time.perf_counter()
    options = settled(options)
    destination = together(world, lambda: own_destination(options, world))
    together(world, lambda: refuse_absent(options.source))
    places = world.all_gather(world.place)
    together(world, lambda: check_memory(options, options.piece_bytes, places, world))
    sample = take_sample(options, world, source)
    job = world.broadcast(secrets.token_hex(4))
    with (
        together(world, lambda: lock_destination(destination, options.source, world.place, job)) as held,
        together(world, lambda: held.open(destination)) as folder,
    ):
        together(world, held.refuse_another_node)
        rates = Probe(options, world, folder, sample, budget_s, quiet).run(job)
        ceilings = Ceilings(
            source=str(options.source), destination=options.destination, nodes=tuple(node_names(world)),
            ranks=world.place.size, seconds=time.perf_counter() - start, rates=tuple(rates),
            machine=machine_facts(world, options.source, destination),
        )  # fmt: skip
        ceilings = world.broadcast(ceilings)
        if world.place.local_rank == 0:
            write_ceilings(ceilings, folder)
        world.barrier()
    return ceilings


class Probe:
    """The measurements one after another; each begins on all ranks at once."""

    def __init__(
        self, options: StageOptions, world: World, destination: DestinationFolder, sample: Sample, budget_s: float,
        quiet: bool,
    ) -> None:  # fmt: skip
        self.options = options
        self.world = world
        self.destination = destination
        self.sample = sample
        self.budget_s = budget_s
        self.filesystem = filesystem_type(options.source)
        self.rates: list[Rate] = []
        self.quiet = quiet

    def run(self, job: str) -> list[Rate]:
        """Measure everything that can be measured here."""
        name = f"{BOOKKEEPING}/probe.{job}"
        together(self.world, lambda: self._make(name))
        try:
            with together(self.world, lambda: self.destination.below(name)) as folder:
                self._measure_all(folder)
            return self.rates
        finally:
            if self.world.place.local_rank == 0:
                with suppress(OSError):
                    self.destination.remove(name)

    def _measure_all(self, folder: DestinationFolder) -> None:
        ways = self._ways(folder.path)
        shown = self.world.place.rank == 0 and not self.quiet
        with Progress(self._number(len(ways)), "probe", "measurements", enabled=shown) as self.progress:
            self._looks()
            self._reads()
            self._local(folder, ways)
            self._exchange()
            self._decode()

    def _make(self, name: str) -> None:
        """Make the folder to write in, and remove those of killed probes; the caller holds the destination's lock."""
        if self.world.place.local_rank != 0:
            return
        try:
            with self.destination.below(BOOKKEEPING) as books, books.reach("") as descriptor:
                for left in os.scandir(descriptor):
                    if left.name.startswith("probe.") and left.is_dir(follow_symlinks=False):
                        books.remove(left.name)
            self.destination.below(name, make=True).close()
        except OSError as error:
            problem = f"cannot be made ({error.strerror})"
            raise DataError(self.destination / name, problem, "choose another destination") from None

    def _blocks(self) -> list[int]:
        """Block sizes up to the first that holds the largest file of the sample."""
        largest = self.sample.largest
        return [block for number, block in enumerate(BLOCKS) if number == 0 or BLOCKS[number - 1] < largest]

    def _ways(self, folder: Path) -> list[WriteWay]:
        """The ways to write large files that work on all nodes."""

        def works_here() -> list[WriteWay]:
            try:
                return ways_at(folder)
            except OSError as error:
                problem = f"cannot be written to ({error.strerror})"
                raise DataError(folder, problem, "choose another destination") from None

        ways_by_rank = self.world.all_gather(together(self.world, works_here))
        return [way for way in WAYS if all(way in ways for ways in ways_by_rank)]

    def _number(self, ways: int) -> int:
        read = len(THREADS) * len(self._blocks()) if self.sample.segments else 0
        looks = 2 * len(THREADS) if self.sample.names else 0
        exchange = len(BLOCKS) if self.world.place.nodes > 1 else 0
        return read + looks + exchange + bool(self.sample.gzip) + 2 * ways + 2

    def _looks(self) -> None:
        """Measure looking at files and opening them."""
        place, sample = self.world.place, self.sample
        settings = [(part, threads) for threads in THREADS for part in ("stat", "open")] if sample.names else []
        for number, (part, threads) in enumerate(settings):
            names, note = share_of(sample, number, len(settings), place)
            seconds = self.budget_s * METADATA_SHARE / len(settings)
            rate = look_rate if part == "stat" else open_rate
            self._measure(part, threads, 0, partial(rate, sample.root, names, threads, seconds), note)

    def _reads(self) -> None:
        """Measure reading the source."""
        settings = [(threads, block) for block in self._blocks() for threads in THREADS] if self.sample.segments else []
        for threads, block in settings:
            seconds = self.budget_s * READ_SHARE / len(settings)
            before = IoCounters.now()
            self.world.barrier()
            rate, size = together(
                self.world, partial(read_rate, self.sample, threads, block, seconds, self.world.place)
            )
            self._add("read", threads, block, rate, cache_state(before, IoCounters.now(), size, self.filesystem))

    def _local(self, folder: DestinationFolder, ways: list[WriteWay]) -> None:
        """Measure writing to the destination: large files, and small ones."""
        options, seconds = self.options, self.budget_s * CREATE_SHARE
        for way in ways:
            both = write_rates(folder, options, self.world, self.budget_s * WRITE_SHARE / len(ways), way)
            for part, value in zip(("write", "write_flushed"), both, strict=True):
                self._add(part, options.threads, options.piece_bytes, value, way)
        rate = partial(create_rate, folder, options.threads, SMALL_FILE, seconds, self.world.place)
        self._measure("create", options.threads, SMALL_FILE, rate)

    def _exchange(self) -> None:
        """Measure sending to the next node while the previous one sends."""
        if self.world.place.nodes > 1:
            lane = neighbours(self.world)
            for block in BLOCKS:
                seconds = self.budget_s * EXCHANGE_SHARE / len(BLOCKS)
                self._add("exchange", 1, block, exchange_rate(self.world, lane, block, seconds))

    def _decode(self) -> None:
        """Measure checksums, and decompression if the source is gzip."""
        threads, block = self.options.threads, self.options.piece_bytes
        seconds = self.budget_s * DECODE_SHARE / (2 if self.sample.gzip else 1)
        self._measure("crc32c", threads, block, partial(crc32c_rate, threads, block, seconds))
        if self.sample.gzip:
            self._measure("gunzip", threads, 0, partial(gunzip_rate, self.sample, threads, seconds))

    def _measure(self, part: str, threads: int, block: int, rate: Callable[[], float], note: str = "") -> None:
        self.world.barrier()
        self._add(part, threads, block, together(self.world, rate), note)

    def _add(self, part: str, threads: int, block: int, value: float, note: str = "") -> None:
        """Gather the rates of all ranks; a rate that is 0 everywhere could not be measured."""
        rates_by_rank = self.world.all_gather((self.world.place.node, value, note))
        per_node = [0.0] * self.world.place.nodes
        for node, rate, _ in rates_by_rank:
            per_node[node] += rate
        notes = {said for *_, said in rates_by_rank}
        if sum(per_node) > 0:
            said = notes.pop() if len(notes) == 1 else "mixed"
            self.rates.append(Rate(part, threads, block, tuple(per_node), said))
        self.progress.advance(1)


def neighbours(world: World) -> tuple[int, int] | None:
    """The ranks on the next and the previous node that this one exchanges with; ``None`` for a rank without a lane."""
    places: list[Place] = world.all_gather(world.place)
    place = world.place
    ring = {other.node: other.rank for other in places if other.local_rank == place.local_rank}
    if len(ring) < place.nodes:
        return None
    return ring[(place.node + 1) % place.nodes], ring[(place.node - 1) % place.nodes]


def exchange_rate(world: World, lane: tuple[int, int] | None, block: int, seconds: float) -> float:
    """Bytes per second that this rank sends to the next node while it receives as many from the previous one."""
    sent, received = bytearray(block), bytearray(block)

    def exchange(times: int) -> float:
        world.barrier()
        start = time.perf_counter()
        for _ in range(times if lane is not None else 0):
            assert lane is not None
            world.send_receive(sent, lane[0], received, lane[1])
        return time.perf_counter() - start

    exchange(1)
    slowest = max(world.all_gather(exchange(2))) / 2
    # all must agree on the number, or one would wait for a message that never comes
    times = max(2, int(seconds / max(slowest, 1e-6)))
    elapsed = exchange(times)
    return times * block / elapsed if lane is not None else 0.0


def node_names(world: World) -> list[str]:
    """The names of the nodes, in node order."""
    places: list[Place] = world.all_gather(world.place)
    names = {place.node: place.node_name for place in places}
    return [names[node] for node in range(world.place.nodes)]


def machine_facts(world: World, source: Path, destination: Path) -> list[dict[str, Any]]:
    """Facts about the nodes: one object for each kind of node, with the number of such nodes; collective."""
    own_facts: tuple[tuple[str, Any], ...] | None = None
    if world.place.local_rank == 0:
        destination_storage = storage(destination)
        own_facts = (
            ("cpus", len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
            ("memory_bytes", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
            ("processor", platform.machine()),
            ("kernel", platform.release()),
            ("python", platform.python_version()),
            ("ranks", world.place.local_size),
            ("source_filesystem", filesystem_type(source)),
            ("destination_filesystem", destination_storage.filesystem),
            ("destination_tier", destination_storage.tier),
        )
    facts_by_rank: Sequence[tuple[tuple[str, Any], ...] | None] = world.all_gather(own_facts)
    kinds = Counter(facts for facts in facts_by_rank if facts is not None)
    return [{"nodes": number, **dict(facts)} for facts, number in kinds.items()]
