"""Gives shards new homes: draws them again and moves files between the nodes by exchange, without the source.

A file is removed from its old node only once it is durable, and named in the manifest, on its new one. Arriving files
stay in the bookkeeping folder until all are there. After a kill at any instant, every file is whole on at least one
node, and the destination counts as not staged to its end. The next staging clears up, puts each file where its options
say, from the source if it must, and then removes what is elsewhere.
"""

from __future__ import annotations

import os
import pickle
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staging.bookkeeping import ARRIVING, BOOKKEEPING
from staging.counters import Counters
from staging.errors import DataError, InputError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.sinks import UNSET, Landed, kept_by
from staging.ledger.destination_lock import DestinationLock, lock_destination
from staging.ledger.durable_batch import sync_filesystem
from staging.ledger.journal import Journal, Start, bytes_added
from staging.ledger.jsonl import read_header
from staging.ledger.manifest import Manifest, identity_of, load_records, manifest_path
from staging.moving.exchange import Lane, move_by_exchange
from staging.moving.writing import PieceWriter
from staging.one_line import one_line
from staging.options import StageOptions
from staging.planning.overhead import overhead
from staging.planning.plan import Plan, homes, matching, with_lanes
from staging.planning.slices import Slices
from staging.prepare import own_destination, ranks_per_node, sample_groups
from staging.present import unlink_as_landed
from staging.print_line import print_line
from staging.ranks.collective_errors import together
from staging.ranks.signals import what_ended
from staging.ranks.world import Place, World
from staging.source.listing import Listing, Names
from staging.source.sources import READ, TreeSource
from staging.storage.destination_folder import DestinationFolder
from staging.storage.space import bytes_in_blocks, check_space
from staging.threads.adaptive_pool import run_in_thread


@dataclass(frozen=True)
class ReshuffleReport:
    """What moved between nodes, over all of them; the same on all ranks."""

    shuffle: int
    files: int
    bytes: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Moves:
    """Files that change nodes, as they landed, in the order of their names: where each is, and where it goes."""

    listing: Listing
    sources: Names
    """The entry of the source that each file came from."""
    present: NDArray[np.int32]
    home: NDArray[np.int32]
    landed_ns: NDArray[np.int64]
    """The time that each has where it is, which may be coarser than that of its source."""
    blocks: Sequence[bytes]
    """``Landed.blocks`` of each."""
    source_sizes: Sequence[int]
    """``Landed.source_size`` of each."""

    def arriving(self, node: int) -> list[Landed]:
        """Files that go to ``node``."""
        return self._landed(np.flatnonzero(self.home == node))

    def leaving(self, node: int) -> list[Landed]:
        """Files that leave ``node``."""
        return self._landed(np.flatnonzero(self.present == node))

    def _landed(self, entries: NDArray[np.int64]) -> list[Landed]:
        files, sources = self.listing.take(entries), self.sources.take(entries)
        columns = (column.tolist() for column in (files.sizes, files.checksums, files.mtimes_ns))
        rows = zip(files.names, *columns, sources, entries.tolist(), strict=True)
        return [
            Landed(name, size, checksum, source, time_ns, UNSET, self.blocks[entry], self.source_sizes[entry])
            for name, size, checksum, time_ns, source, entry in rows
        ]


def reshuffle(options: StageOptions, shuffle: int, world: World) -> ReshuffleReport:
    """Move shards that were staged with ``options`` to the homes of draw number ``shuffle``; collective.

    Homes are balanced by the bytes that landed, and a function of the seed and ``shuffle`` alone; if no transform
    changed the sizes, they are those of a staging with ``StageOptions.shuffle``. Raises ``InputError`` on all ranks,
    before a byte has moved, if the destination holds no whole shards, or lacks room for what arrives in addition to
    what leaves later. Raises ``DataError`` for later problems, on the rank that meets them, so that the caller ends the
    others.

    Memory: every rank holds about 100 bytes for each file of all nodes, and 16 for each MiB of it; the first rank holds
    a few times that. Each rank also holds pieces, as in a staging by exchange.
    """
    if options.contiguous:
        raise InputError("contiguous shards are not drawn, so there is no other draw; leave out contiguous")
    start = time.perf_counter()
    destination = together(world, lambda: own_destination(replace(options, path="exchange"), world))
    job = world.broadcast(secrets.token_hex(4))
    with (
        together(world, lambda: lock_destination(destination, options.source, world.place, job)) as held,
        together(world, lambda: held.open(destination)) as folder,
    ):
        together(world, held.refuse_another_node)
        moves = draw(options, shuffle, world, destination)
        need = together(world, lambda: make_ready(folder, moves, world.place))
        together(world, lambda: check_space(destination, *need, world))
        journal = Journal(destination)
        begun = Start.of_this_process(job, world.place, " ".join(sys.argv))
        try:
            journal.start(begun)
            move(options, moves, world, folder)
            world.barrier()
            together(world, lambda: settle(folder, moves.arriving(world.place.node), world.place))
            together(world, lambda: remove(folder, moves.leaving(world.place.node), world.place))
        except BaseException as error:
            cause = what_ended(error)
            with suppress(DataError):  # such as a full disk, which the first error reports
                journal.end(begun, "aborted", str(cause) or type(cause).__name__)
            raise
        run_in_thread(partial(journal.end, begun))
        world.barrier()
    seconds = max(world.all_gather(time.perf_counter() - start))
    return ReshuffleReport(shuffle, len(moves.listing), moves.listing.bytes, seconds)


def draw(options: StageOptions, shuffle: int, world: World, destination: Path) -> Moves:
    """Decide on the first rank what goes where; collective. Raises ``InputError`` on all ranks."""
    files_by_rank = world.all_gather(
        (world.place.node, together(world, lambda: sharded(options, world.place, destination)))
    )

    def first_draws() -> Moves | None:
        if world.place.rank != 0:
            return None
        # sent by the ranks of this job, which pickle all objects that they send
        on_node = {node: pickle.loads(files) for node, files in files_by_rank if files is not None}  # noqa: S301
        return drawn(on_node, options, shuffle, destination)

    moves = world.broadcast(together(world, first_draws))
    assert moves is not None
    return moves


def drawn(on_node: dict[int, list[Landed]], options: StageOptions, shuffle: int, destination: Path) -> Moves:
    """The files whose home is not the node that has them. Raises ``DataError`` if a file is on two nodes."""
    files_on_nodes = ((file, node) for node, files in on_node.items() for file in files)
    rows = sorted(files_on_nodes, key=lambda row: os.fsencode(row[0].name))
    if (twice := next((a for (a, _), (b, _) in pairwise(rows) if a.name == b.name), None)) is not None:
        raise DataError(destination / twice.name, "is on two nodes", "stage again, which mends that")
    home_of = homes_of([file for file, _ in rows], len(on_node), options, shuffle)
    moving = [(file, node) for file, node in rows if home_of[file.source] != node]
    files = [file for file, _ in moving]
    columns = ([getattr(file, key) for file in files] for key in ("size", "mtime_ns", "checksum"))
    listing = Listing(Names.of(file.name for file in files), *(np.array(column, np.int64) for column in columns))
    present = np.array([node for _, node in moving], np.int32)
    home = np.array([home_of[file.source] for file in files], np.int32)
    landed_ns = np.array([file.landed_ns for file in files], np.int64)
    blocks, source_sizes = [file.blocks for file in files], [file.source_size for file in files]
    return Moves(listing, Names.of(file.source for file in files), present, home, landed_ns, blocks, source_sizes)


def homes_of(files: Sequence[Landed], nodes: int, options: StageOptions, shuffle: int) -> dict[str, int]:
    """The home of each entry of the source, from the bytes that landed from it."""
    landed: dict[str, int] = {}
    for file in files:
        landed[file.source] = landed.get(file.source, 0) + file.size
    sources = sorted(landed, key=os.fsencode)
    zeros, sizes = np.zeros(len(sources), np.int64), np.array([landed[source] for source in sources], np.int64)
    listing = Listing(Names.of(sources), sizes, zeros, zeros - 1)
    drawn_homes = homes(listing, nodes, options.seed, shuffle, sample_groups(options.source))
    return dict(zip(sources, drawn_homes.tolist(), strict=True))


def sharded(options: StageOptions, place: Place, destination: Path) -> bytes | None:
    """The pickled files of this node's shard, on its first rank. Raises ``InputError`` if it is no whole shard."""
    if place.local_rank != 0:
        return None
    records = load_records(destination)
    identity = identity_of(read_header(manifest_path(destination)), manifest_path(destination))
    if identity.get("placement") != "shard" or identity.get("nodes") != place.nodes:
        problem = f"holds no shards of {place.nodes} nodes, but placement {identity.get('placement')}"
        raise DataError(destination, problem, "stage with placement shard on these nodes")
    if not Journal(destination).is_done():
        raise DataError(destination, "was not staged to its end", "stage it again")
    files = list(records)
    everywhere = matching(Listing(Names.of(file.source for file in files), *[np.zeros(len(files), np.int64)] * 3),
                          options.replicate_also)  # fmt: skip
    return pickle.dumps([file for file, replicated in zip(files, everywhere, strict=True) if not replicated])


def make_ready(folder: DestinationFolder, moves: Moves, place: Place) -> tuple[int, int]:
    """Clear the folder for arrivals; returns the bytes and files that they take, on the first rank of a node."""
    if place.local_rank != 0:
        return 0, 0
    clear_arrivals(folder)
    return needed(folder.path, moves, place)


def needed(destination: Path, moves: Moves, place: Place) -> tuple[int, int]:
    """Bytes and files that the arrivals of a node take, with what is written about them and about what leaves."""
    comes, goes = (np.flatnonzero(column == place.node) for column in (moves.home, moves.present))
    content_bytes = bytes_in_blocks(moves.listing.sizes[comes], destination)
    arriving = moves.listing.take(comes).names
    # folders are made for the arrivals, and may be for the places that these are put in
    named = (*arriving, *(f"{BOOKKEEPING}/{ARRIVING}/{name}" for name in arriving), *moves.listing.take(goes).names)
    journal_bytes = bytes_added(place, " ".join(sys.argv))
    books_bytes, books_files = overhead(Names.of(named), content_bytes, destination, journal_bytes)
    return content_bytes + books_bytes, len(comes) + books_files


def clear_arrivals(folder: DestinationFolder) -> None:
    """Remove the folder for arrivals, as far as the system lets us. Raises ``DataError`` for a link on the way."""
    with suppress(OSError):
        folder.remove(f"{BOOKKEEPING}/{ARRIVING}")


class StagedSource(TreeSource):
    """Files that landed in an open destination; links in it are not followed."""

    def __init__(self, folder: DestinationFolder, listing: Listing, retries: int) -> None:
        super().__init__(folder.path, listing, retries=retries)
        self._folder = folder

    def open(self, name: str) -> int:
        """Open a file for reading."""
        return self._folder.open(name, READ)


def move(options: StageOptions, moves: Moves, world: World, folder: DestinationFolder) -> Counters:
    """Bring files into the folder for arrivals: this rank's part in reading, sending and receiving them."""
    place = world.place
    places = world.all_gather(place)
    # each file is read where it is and lands at its home
    whole, never = Slices.whole(moves.listing.sizes), np.zeros(len(moves.listing), np.bool_)
    plan = with_lanes(moves.listing, ranks_per_node(places), moves.home, whole, moves.present, never)
    if place.local_rank >= plan.lanes or not len(plan.listing):
        return Counters()
    ranks = {peer.node: peer.rank for peer in places if peer.local_rank == place.local_rank}
    entries = np.flatnonzero(plan.lane == place.local_rank)
    lane = Lane(world, plan, [ranks[node] for node in range(plan.nodes)], entries, options.piece_bytes)
    every = np.ones(len(plan.listing), np.bool_)
    source = StagedSource(folder, replace(plan.listing, mtimes_ns=moves.landed_ns), options.retries)
    with folder.below(f"{BOOKKEEPING}/{ARRIVING}", make=True) as arriving:
        make_writer = partial(PieceWriter, plan.listing, every, FileSinkMaker(False), arriving, lambda landed: None)
        return move_by_exchange(
            lane, source, make_writer, options.threads, options.queue_pieces, checked=options.verify != "none"
        )


def settle(folder: DestinationFolder, files: list[Landed], place: Place) -> None:
    """Make the arrived files durable, name them in the manifest, and put them in place."""
    if place.local_rank != 0 or not files:
        return
    sync_filesystem(folder.path, folder.held(""))
    with folder.below(f"{BOOKKEEPING}/{ARRIVING}") as arriving:
        Manifest(folder.path).append([as_kept(file, arriving) for file in files])
        for file in files:
            try:
                folder.rename(file.name, file.name, arriving)
            except OSError as error:
                problem = f"cannot be put in place ({error.strerror})"
                raise DataError(folder / file.name, problem, "stage again") from None
    clear_arrivals(folder)
    sync_filesystem(folder.path, folder.held(""))


def as_kept(file: Landed, folder: DestinationFolder) -> Landed:
    """The record of a file with the modification time that its new node keeps."""
    return replace(file, kept_ns=kept_by(folder.status(file.name), file.mtime_ns))


def remove(folder: DestinationFolder, files: Iterable[Landed], place: Place, *, quiet: bool = False) -> None:
    """Remove files that another node has now, and then their names from the manifest.

    A file that is not as it landed here may be somebody's own: it stays, and is reported unless ``quiet``.
    """
    names = [file.name for file in files]
    if place.local_rank != 0 or not names:
        return
    records = load_records(folder.path)  # these have the file times that this node keeps
    _, left = unlink_as_landed(folder, (records[name] for name in names if name in records))
    for name in left if not quiet else ():
        print_line(f"{place.node_name}: left {one_line(name)}, which is not as staging put it there")
    sync_filesystem(folder.path, folder.held(""))
    Manifest(folder.path).remove(names)


def remove_strays(plan: Plan, destination: Path, place: Place, held: DestinationLock, *, quiet: bool = False) -> None:
    """At the end of a staging of shards, remove files whose home is elsewhere, and unfinished arrivals.

    Files that came from no entry of the plan stay, and so do files that are not as they landed.
    """
    if place.local_rank != 0 or not (plan.home >= 0).any():
        return
    at_home = {plan.listing.names[int(entry)] for entry in plan.lands_on(place.node)}
    elsewhere = set(plan.listing.names) - at_home
    with held.open(destination) as folder:
        clear_arrivals(folder)
        strays = [file for file in load_records(destination) if file.source in elsewhere]
        remove(folder, strays, place, quiet=quiet)
