"""Settles everything before the first byte moves: where to, what, by whom, and whether it fits."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staging.archive_members import Members, archives_of, look_into
from staging.collisions import refuse_collisions
from staging.counters import Counters
from staging.errors import InputError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.sinks import SinkMaker
from staging.landing.transform_exclusions import WithExclusions, landed_names, matcher
from staging.landing.transforms import holds_files, sink_maker
from staging.ledger.clean import room_of_unfinished
from staging.ledger.destination_lock import refuse_nesting, refuse_strangers
from staging.ledger.journal import bytes_added
from staging.ledger.verify import BadFile
from staging.open_source import HDF5, open_source
from staging.options import StageOptions
from staging.phase_timer import PhaseTimer
from staging.planning.overhead import overhead
from staging.planning.plan import PAIRS, ROWS, Plan, make_plan
from staging.planning.slices import CUT_BYTES
from staging.present import Present, look, named_before
from staging.ranks.collective_errors import together
from staging.ranks.world import Place, World
from staging.source.listing import Listing, Names
from staging.source.sources import Source
from staging.storage.destination import expand
from staging.storage.space import available_memory, block_bytes, bytes_in_blocks, check_space
from staging.units import counted, human
from staging.verification import damaged

LARGEST_PIECE = 1 << 30


@dataclass
class Prepared:
    """A staging that can begin."""

    options: StageOptions
    world: World
    places: list[Place]
    destination: Path
    source: Source
    plan: Plan
    present: Present
    """What is already there of the plan."""
    bad: list[tuple[str, BadFile]]
    """Files on all nodes that a repair found not to be what landed, each after the name of its node."""
    lost: list[tuple[str, BadFile]]
    """Those of ``bad`` that this staging does not bring: their entries are gone from the source, or left out."""
    unchecked: int
    """Number of files on all nodes that a repair compared by size alone: they landed without a checksum."""
    make_sink: SinkMaker
    piece_bytes: int
    arrival_order: NDArray[np.int64]
    """For each entry, its place in the order in which entries are to arrive."""
    timer: PhaseTimer
    counters: Counters
    by_names: bool = False
    """Whether the caller, or that of the staging that this one repairs, named the files; otherwise options chose."""

    @property
    def wanted(self) -> NDArray[np.bool_]:
        """Entries that this node lacks."""
        return self.present.wanted

    @property
    def moving(self) -> NDArray[np.bool_]:
        """Entries that some node lacks."""
        return self.present.moving

    @property
    def listing(self) -> Listing:
        """What the source holds."""
        return self.source.listing

    def in_turn(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of slices in the order in which they are to arrive."""
        return numbers[np.argsort(self.arrival_order[self.plan.slices.entry[numbers]], kind="stable")]

    def partners(self) -> list[int]:
        """The rank of each node that handles the same lane as this one."""
        lane = self.world.place.local_rank
        ranks = {place.node: place.rank for place in self.places if place.local_rank == lane}
        return [ranks[node] for node in range(self.plan.nodes)]

    def sources_here(self) -> dict[str, str]:
        """Map the names of the files that land on this node, as far as their sources' names tell, to their entries."""
        landed, names = landed_names(self.options.transform, self.options.plain), self.listing.names
        here = (names[int(entry)] for entry in self.plan.lands_on(self.world.place.node))
        return {output: name for name in here for output in landed(name)}

    @property
    def buffer_bytes(self) -> int:
        """The most bytes of pieces that a rank holds, for any number of nodes; a transform may also hold a file."""
        return pieces_of(self.options) * self.piece_bytes

    @property
    def is_idle(self) -> bool:
        """Whether this rank has no lane: in an exchange, its node has more ranks than another."""
        return self.world.place.local_rank >= self.plan.lanes


def prepare(
    options: StageOptions,
    world: World,
    timer: PhaseTimer,
    counters: Counters,
    names: Sequence[str] | None = None,
    *,
    must_fit: bool = True,
    quiet: bool = False,
) -> Prepared:
    """List the source, make the plan, and check that it fits; nothing is written. Collective.

    ``names`` are the relative names of the files to stage, in the order in which they are to arrive. Without them the
    source is listed; but a repair that chooses no files keeps to those that an earlier caller named. Raises
    ``InputError`` on all ranks for bad options, an unreadable source, a destination that belongs to something else,
    and, with ``must_fit``, too little space on any node.
    """
    places = world.all_gather(world.place)
    make_sink = together(world, lambda: sinks_of(options))
    destination = together(world, lambda: own_destination(options, world))
    with timer.span("list"):
        if names is None and options.repair and options.takes_all:
            names = named_before(destination, world)
        source = together(world, lambda: open_source(options, world, counters, names))
    bad, unchecked = list[tuple[str, BadFile]](), 0
    if options.repair:
        with timer.span("verify"):
            bad, unchecked = damaged(destination, options.threads, world, quiet=quiet)
    here = world.place.node_name
    with timer.span("plan"):
        plan = together(world, lambda: plan_for(source.listing, places, options, world.place.node))
        present = look(plan, world, destination, options, {file.name for node, file in bad if node == here})
        again = world.all_gather({(here, file.name) for file in present.stale}) if bad else []
    with timer.span("check"):
        together(world, lambda: refuse_collisions(options, source.listing))
        if must_fit:
            check_room(destination, source.listing, present.wanted, make_sink, options, world)
    lost = not_brought(bad, again)
    arrival_order = arrival_order_of(source.listing, names)
    piece_bytes = max(options.piece_bytes, held_bytes(options, source.listing))
    prepared = Prepared(
        options, world, places, destination, source, plan, present, bad, lost, unchecked, make_sink, piece_bytes,
        arrival_order, timer, counters, by_names=names is not None,
    )  # fmt: skip
    together(world, lambda: check_memory(options, piece_bytes, places, world))
    return prepared


def not_brought(bad: list[tuple[str, BadFile]], again: list[set[tuple[str, str]]]) -> list[tuple[str, BadFile]]:
    """Those of ``bad`` that no rank brings ``again``, which has the node and the name of each file, by rank."""
    brought = set[tuple[str, str]]().union(*again)
    return [(node, file) for node, file in bad if (node, file.name) not in brought]


def pieces_of(options: StageOptions) -> int:
    """The most pieces that a rank holds."""
    queue, threads = options.queue_pieces, options.threads
    return queue + 2 + 2 * threads if options.path == "exchange" else threads * (queue + 2)


def check_memory(options: StageOptions, piece_bytes: int, places: Sequence[Place], world: World) -> None:
    """Raise ``InputError`` if the buffers of this node's ranks exceed its available memory."""
    sizes = [place.local_size for place in places] if options.path == "exchange" else [world.place.local_size]
    lanes = min(sizes)
    need, left = pieces_of(options) * piece_bytes * lanes, available_memory()
    if need > left:
        raise InputError(
            f"pieces of {human(piece_bytes)} for {counted(lanes, 'rank')} of {counted(options.threads, 'thread')} take "
            f"{human(need)}, and {human(left)} of memory are left; lower --piece-bytes or --threads"
        )


def arrival_order_of(listing: Listing, names: Sequence[str] | None) -> NDArray[np.int64]:
    """For each entry, its place in the order of ``names``, or without names, in that of the listing.

    A name that is there several times has the first of its places.
    """
    if names is None:
        return np.arange(len(listing), dtype=np.int64)
    turn = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.fromiter((turn[name] for name in listing.names), np.int64, len(listing))


def held_bytes(options: StageOptions, listing: Listing) -> int:
    """The smallest piece for an exchange with a transform that holds whole files: no file may be held in parts.

    Otherwise parts of a file from each node would wait in memory at once; whole files arrive one by one.
    """
    if not options.transform or options.path == "direct" or not holds_files(options.transform):
        return 1
    largest = int(listing.sizes.max(initial=0))
    return largest if largest <= LARGEST_PIECE else 1


def sample_groups(source: Path) -> str:
    """The expression that tells by their names which entries of ``source`` belong together (see ``make_plan``)."""
    return ROWS if source.suffix in HDF5 else PAIRS


def plan_for(listing: Listing, places: list[Place], options: StageOptions, node: int) -> Plan:
    """The plan: who reads what, and where it lands; as ``node`` carries it out."""
    ranks = ranks_per_node(places)
    return make_plan(
        listing, len(ranks), ranks, options.placement, options.path, options.seed,
        group_by=sample_groups(options.source), shuffle=options.shuffle, replicate_also=options.replicate_also,
        may_cut=as_they_are(listing, options), node=node, contiguous=options.contiguous,
    )  # fmt: skip


def as_they_are(listing: Listing, options: StageOptions) -> NDArray[np.bool_]:
    """For each entry, whether ranks may bring it in parts: a large file that no transform needs as a whole."""
    large = listing.sizes >= CUT_BYTES
    if not options.share_files or options.source.is_file():
        return np.zeros(len(listing), np.bool_)
    if options.transform:
        is_plain = matcher(options.plain, options.transform)
        for entry in np.flatnonzero(large).tolist() if options.plain else ():
            large[entry] = bool(is_plain(listing.names[entry]))
        large &= bool(options.plain)
    return large


def sinks_of(options: StageOptions) -> SinkMaker:
    """The maker of the sinks that take each file's bytes. Raises ``InputError`` for an unknown transform."""
    files = FileSinkMaker(options.verify != "none", options.largest_output)
    make_sink = sink_maker(options.transform, files)
    if options.transform and options.plain:
        return WithExclusions(make_sink, files, options.plain, options.transform)
    return make_sink


def own_destination(options: StageOptions, world: World) -> Path:
    """The destination on this rank's node, with links resolved. Raises ``InputError`` if it may not be used.

    If it is a link that somebody redirects in the meantime, the lock, the records and the files stay in one place.
    """
    if options.path == "exchange" and world.place.size > 1 and options.piece_bytes > LARGEST_PIECE:
        raise InputError(f"piece_bytes ({options.piece_bytes}) must be at most {LARGEST_PIECE} for path exchange")
    if options.drop_vanished and not options.update:
        raise InputError("drop_vanished is for a staging that follows its source; set update, too")
    for name, least in (("threads", 1), ("piece_bytes", 1), ("queue_pieces", 1), ("retries", 0)):
        if getattr(options, name) < least:
            raise InputError(f"{name} ({getattr(options, name)}) must be at least {least}")
    destination = expand(options.destination, world.place.node_name, world.place.rank, os.environ)
    refuse_nesting(options.source, destination)
    refuse_strangers(destination)
    return Path(os.path.realpath(destination))


def ranks_per_node(places: list[Place]) -> list[int]:
    """How many ranks each node has, in the order of the nodes."""
    return [size for _, size in sorted({place.node: place.local_size for place in places}.items())]


def check_room(
    destination: Path, listing: Listing, wanted: NDArray[np.bool_], make_sink: SinkMaker, options: StageOptions,
    world: World,
) -> int:  # fmt: skip
    """Raise ``DataError`` on all ranks unless all nodes have room; returns the most bytes a node needs. Collective.

    What a staging that did not finish left counts as room, since the next one removes it first.
    """
    entries = np.flatnonzero(wanted)
    archives = archives_of(listing, options)
    members: Members | None = None
    if archives:  # the same on all ranks, and so is the largest of them
        largest = listing.path(options.source, max(archives, key=lambda entry: int(listing.sizes[entry])))
        members = world.broadcast(together(world, lambda: look_into(largest) if world.place.rank == 0 else None))

    def needed() -> tuple[int, int]:
        if world.place.local_rank != 0:
            return 0, 0
        names, sizes = listing.take(entries).names, listing.sizes[entries]
        if not options.transform:
            content_bytes = bytes_in_blocks(sizes, destination)
        else:
            names, content_bytes = outputs_of(names, sizes, make_sink, block_bytes(destination))
        journal_bytes = bytes_added(world.place, " ".join(sys.argv), options.selection_words())
        books_bytes, books_files = overhead(names, content_bytes, destination, journal_bytes)
        more_bytes, more_files = 0, 0
        if members is not None:
            here = ((listing.names[n], int(listing.sizes[n])) for n in archives if wanted[n])
            tar_bytes = sum(size for archive in here for _, size in make_sink.estimate(*archive))
            more_bytes, more_files = members.beyond(tar_bytes, block_bytes(destination))
        return content_bytes + books_bytes + more_bytes, len(names) + books_files + more_files

    need_bytes, need_files = together(world, needed)
    first = world.place.local_rank == 0
    given_back = together(world, lambda: room_of_unfinished(destination) if first else (0, 0))
    together(world, lambda: check_space(destination, need_bytes, need_files, world, given_back))
    return max(world.all_gather(need_bytes))


def outputs_of(names: Names, sizes: NDArray[np.int64], make_sink: SinkMaker, block: int) -> tuple[Names, int]:
    """The files that entries become, and their bytes in whole blocks of ``block``, as far as names and sizes tell."""
    outputs = [
        file for name, size in zip(names, sizes.tolist(), strict=True) for file in make_sink.estimate(name, size)
    ]
    return Names.of(name for name, _ in outputs), sum(-(-size // block) for _, size in outputs) * block


def identity(prepared: Prepared) -> dict[str, Any]:
    """What the destination of this node is for; a staging of another identity is refused there."""
    options, plan = prepared.options, prepared.plan
    node_identity: dict[str, Any] = {
        "source": os.path.realpath(options.source), "placement": options.placement, "transform": options.transform,
    }  # fmt: skip
    if options.plain:
        node_identity["plain"] = list(options.plain)
    if options.placement == "shard":
        node_identity |= {"node": prepared.world.place.node, "nodes": plan.nodes, "seed": options.seed}
        if options.contiguous:
            node_identity["contiguous"] = True
        if options.replicate_also:
            node_identity["replicate_also"] = list(options.replicate_also)
    return node_identity


def settled(options: StageOptions) -> StageOptions:
    """The options with an absolute source, so that the manifest records where it was."""
    return replace(options, source=options.source.absolute())
