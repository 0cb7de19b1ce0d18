"""Stages a dataset: lists, plans, checks, moves, makes durable, verifies and reports; all ranks call it together."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from staging.abort_hook import AbortHook, told_of_abort
from staging.bookkeeping import BOOKKEEPING
from staging.collisions import refuse_landed_collisions
from staging.counters import Counters
from staging.errors import DataError
from staging.growth import count_growth
from staging.landing.settle_shared import settle_shared
from staging.landing.shared_files import SharedFiles
from staging.ledger.clean import remove_unfinished
from staging.ledger.destination_lock import DestinationLock, lock_destination
from staging.ledger.durable_batch import DurableBatch, sync_filesystem
from staging.ledger.journal import KILLED, Journal, Start
from staging.ledger.manifest import Manifest
from staging.ledger.verify import BadFile
from staging.moving.direct import move_directly
from staging.moving.exchange import Lane, move_by_exchange
from staging.moving.streams import Stream
from staging.moving.writing import PieceWriter, Writers
from staging.one_line import one_line
from staging.options import StageOptions
from staging.phase_timer import PhaseTimer
from staging.prepare import Prepared, identity, prepare, settled
from staging.present import brought_again, drop, make_way, refuse_bad, stale_file, vanished
from staging.print_line import print_line
from staging.probing.ceilings import Ceilings, ceilings_for
from staging.progress import Progress
from staging.ranks.abort import AbortWatcher
from staging.ranks.collective_errors import together
from staging.ranks.signals import what_ended
from staging.ranks.world import Place, World
from staging.report import RankReport, StagingReport
from staging.reshuffle import remove_strays
from staging.source.page_cache import IoCounters, cache_state
from staging.storage.destination import storage
from staging.storage.destination_folder import DestinationFolder
from staging.storage.space import filesystem_type
from staging.storage.write_ways import WriteWay, choose_way
from staging.threads.adaptive_pool import run_in_thread
from staging.timeline import Landings
from staging.verification import bad_table, damaged, unchecked_line

KEEP_S = 3.0
"""How long a rank that failed may take to make durable and name what landed, before it tells the others."""
KEEP_BRIEFLY_S = 0.5
"""The same for a rank that another rank ends."""


def stage(
    options: StageOptions,
    world: World,
    names: Sequence[str] | None = None,
    *,
    quiet: bool = False,
    watcher: AbortWatcher | None = None,
) -> StagingReport:
    """Bring the source, or a part of it, to each node; returns the report, the same on all ranks. Collective.

    ``names`` are the files of the source to bring, in the order in which they are to arrive; without them, all that
    ``options`` choose. What an earlier run brought and named in the manifest stays. Raises ``InputError`` on all ranks,
    before a byte has moved, for whatever can be known then. Raises ``DataError`` for later problems, on the rank that
    meets them, so that the caller ends the others (``together.watch``); ``watcher`` is what ends them, so that they
    record why. What landed until then is kept, and named if the disk takes it in a few seconds.
    """
    prepared = prepare(settled(options), world, PhaseTimer(), Counters(), names, quiet=quiet)
    return carry_out(prepared, quiet=quiet, watcher=watcher)


def carry_out(
    prepared: Prepared,
    *,
    quiet: bool = False,
    watcher: AbortHook | None = None,
    on_move: Callable[[], None] | None = None,
) -> StagingReport:
    """Do the writing part of ``stage``, once, after ``prepare``; collective. ``on_move`` is called before data move."""
    world = prepared.world
    if world.place.rank == 0 and not quiet:
        for line in (prepared.source.skipped, *bad_table(prepared.bad), unchecked_line(prepared.unchecked)):
            if line:
                print_line(line)
    job = world.broadcast(secrets.token_hex(4))
    held = together(world, lambda: lock_destination(prepared.destination, prepared.options.source, world.place, job))
    with held:
        together(world, held.refuse_another_node)
        manifest = together(world, lambda: Manifest.open(prepared.destination, identity(prepared)))
        journal = Journal(prepared.destination)
        together(world, lambda: clear_up(journal, prepared.destination, world.place, quiet))
        ceilings = world.broadcast(together(world, lambda: known_ceilings(prepared)))
        way = together(world, lambda: way_to_write(prepared, ceilings))
        chosen = None if prepared.by_names else prepared.options.selection_words()
        begun = Start.of_this_process(job, world.place, " ".join(sys.argv), chosen, by_names=prepared.by_names)
        staging = Staging(prepared, manifest, quiet, job, way, held)
        with closing(staging.batch), staging.written_down(journal, begun, watcher):
            if on_move is not None:
                on_move()
            report = staging.run()
        report.ceilings = ceilings
        world.barrier()
    return report


def known_ceilings(prepared: Prepared) -> Ceilings | None:
    """What a probe measured for this staging, if one did; the first rank's destination has it."""
    if prepared.world.place.rank != 0:
        return None
    return ceilings_for(prepared.destination, prepared.options.source, prepared.plan.nodes)


def way_to_write(prepared: Prepared, ceilings: Ceilings | None) -> WriteWay:
    """How large files are written at this rank's destination. Raises ``InputError`` for a way that does not work."""
    flushed = None if ceilings is None else ceilings.best("write_flushed")
    return choose_way(
        prepared.options.write_way, "" if flushed is None else flushed.note, prepared.destination / BOOKKEEPING
    )


def clear_up(journal: Journal, destination: Path, place: Place, quiet: bool) -> None:
    """After a staging that did not finish, name the processes that were killed and remove unfinished files.

    The removal is durable before this staging may end, even if it has nothing to move. Only the first rank of a node
    acts, since it holds the destination's lock.
    """
    if place.local_rank != 0 or journal.is_done():
        return
    for start in journal.unfinished(place.node_name):
        if not quiet:
            print_line(f"{start}; continuing from what it left")
        journal.end(start, KILLED)
    if remove_unfinished(destination):
        sync_filesystem(destination)


class Staging:
    """One rank's part in a staging that is prepared and holds its destination's lock."""

    def __init__(
        self, prepared: Prepared, manifest: Manifest, quiet: bool, job: str, way: WriteWay, held: DestinationLock
    ) -> None:
        self.prepared = prepared
        self.options = prepared.options
        self.world = prepared.world
        self.timer = prepared.timer
        self.counters = prepared.counters
        self.quiet, self.job, self.way, self.held = quiet, job, way, held
        self.manifest = manifest
        self.batch = DurableBatch(manifest, prepared.destination)

    def run(self) -> StagingReport:
        """Move, make durable, verify; then gather the report."""
        together(self.world, self.make_way)
        before = IoCounters.now()
        with self.progress() as progress:
            landings = Landings(self.batch, progress)
            with self.timer.span("move"):
                self.move(landings)
        after = IoCounters.now()
        with self.timer.span("commit"):
            run_in_thread(self.batch.commit)
            self.counters.sync_s += self.batch.sync_seconds
        with self.timer.span("wait"):
            self.world.barrier()
        count_growth(self.prepared)
        together(self.world, self.remove_strays)
        if self.options.transform:
            refuse_landed_collisions(self.options, self.prepared.plan, self.prepared.destination, self.world)
        if self.options.update or self.options.transform:
            together(self.world, self.follow)
        if self.options.verify == "reread":
            with self.timer.span("verify"):
                self.verify()
        return self.report(landings, before, after)

    def make_way(self) -> None:
        """Remove what is in the way, and mark files to be written again as doubtful; on the first rank of a node."""
        prepared = self.prepared
        if self.options.update:
            self.counters.files_dropped += make_way(self.options, prepared.plan, self.world.place, prepared.destination)
        if prepared.present.stale:
            self.manifest.doubt(prepared.present.stale)

    @contextmanager
    def written_down(self, journal: Journal, begun: Start, watcher: AbortHook | None) -> Iterator[None]:
        """Record in the journal that ``begun`` begins, and how the work inside ended, also if ``watcher`` ends it.

        The first reason counts: some launchers then send a signal to ranks that are still recording theirs.
        """
        first = threading.Lock()

        def aborted(reason: str, keep_s: float = KEEP_BRIEFLY_S) -> None:
            if first.acquire(blocking=False):
                with suppress(DataError):  # such as a full disk, which the first error reports
                    journal.end(begun, "aborted", reason)
            self.batch.commit_within(keep_s)

        with told_of_abort(watcher, aborted):
            try:
                journal.start(begun)
                yield
            except BaseException as error:
                cause = what_ended(error)
                aborted(str(cause) or type(cause).__name__, KEEP_S)
                raise
        run_in_thread(partial(journal.end, begun))

    def progress(self) -> Progress:
        """A progress bar of what this rank writes; only the first rank shows it."""
        place, slices = self.world.place, self.prepared.plan.slices
        mine = self.prepared.wanted[slices.entry] & (self.prepared.plan.lane == place.local_rank)
        settled = np.unique(slices.entry[slices.is_cut & self.prepared.wanted[slices.entry]])
        file_count = int(np.count_nonzero(mine & ~slices.is_cut)) + (len(settled) if place.local_rank == 0 else 0)
        label = f"stage to {self.prepared.destination}" + (f", rank 0 of {place.size}" if place.size > 1 else "")
        return Progress(file_count, label, "files", enabled=place.rank == 0 and not self.quiet)

    def move(self, landings: Landings) -> None:
        """Do this rank's part of the move; collective."""
        prepared = self.prepared
        place, plan = self.world.place, prepared.plan
        present = plan.lands_on(place.node)
        self.counters.files_present = int(np.count_nonzero(~prepared.wanted[present])) if place.local_rank == 0 else 0
        with DestinationFolder(prepared.destination, self.way) as folder:
            self.held.refuse_other(folder)
            checked, root = prepared.options.verify != "none", prepared.options.source
            shared = SharedFiles(folder, prepared.listing, self.job, checked, root)
            some_shared = any(self.world.all_gather(bool(plan.slices.is_cut.any())))  # on a node with more ranks
            try:
                if not prepared.is_idle:
                    self.move_to(Writers(partial(
                        PieceWriter, prepared.listing, prepared.wanted, prepared.make_sink, folder, landings, root,
                        shared,
                    )))  # fmt: skip
                if some_shared:
                    landed = settle_shared(shared, self.world, prepared.places)
                    self.counters.files_landed += len(landed)
                    self.counters.metadata_operations += 3 * len(landed)
                    run_in_thread(partial(landings, landed))
            except BaseException:
                shared.abandon()
                raise

    def move_to(self, writers: Writers) -> None:
        """Move the slices of this rank into writers. Raises ``DataError`` unless all of them were written."""
        prepared, options = self.prepared, self.options
        place, plan = self.world.place, prepared.plan
        on_lane = plan.lane == place.local_rank
        if options.path == "direct":
            mine = prepared.in_turn(np.flatnonzero(prepared.wanted[plan.slices.entry] & on_lane))
            stream = Stream(plan.slices.take(mine), prepared.piece_bytes)
            done = move_directly(
                prepared.source, stream, writers, options.threads, options.queue_pieces,
                transforms=bool(options.transform),
            )  # fmt: skip
        else:
            numbers = prepared.in_turn(np.flatnonzero(prepared.moving[plan.slices.entry] & on_lane))
            if not len(numbers):  # the same for all partners; making so many buffers takes longer than this check
                return
            lane = Lane(self.world, plan, prepared.partners(), numbers, prepared.piece_bytes)
            done = move_by_exchange(
                lane, prepared.source, writers, options.threads, options.queue_pieces,
                checked=options.verify != "none",
            )  # fmt: skip
        self.counters.add(done)
        writers.refuse_less(int(np.count_nonzero(prepared.wanted[plan.slices.entry] & on_lane)), prepared.destination)

    def remove_strays(self) -> None:
        """Remove files of shards whose home is another node."""
        remove_strays(self.prepared.plan, self.prepared.destination, self.world.place, self.held, quiet=self.quiet)

    def follow(self) -> None:
        """Count files that have vanished from the source, or remove them if asked to; on the first rank of a node.

        Raises ``DataError`` if there are any without ``update`` (an archive had more members), or bad ones stay.
        """
        place, destination = self.world.place, self.prepared.destination
        if place.local_rank != 0:
            return
        files = vanished(self.prepared.plan, place.node, destination, self.options.source)
        if files and not self.options.update:
            raise stale_file(destination, files[0].name)
        self.counters.files_changed = self.prepared.present.changed
        if self.options.drop_vanished:
            dropped, left = drop(destination, files)
            self.counters.files_dropped += dropped
            for name in left if not self.quiet else ():
                print_line(f"{place.node_name}: left {one_line(name)}, which is not as staging put it there")
        else:
            self.counters.files_vanished = len(files)
        refuse_bad(destination, self.repairs()[1])

    def repairs(self) -> tuple[list[BadFile], list[BadFile]]:
        """The bad files of this node that came again, and those that stay."""
        prepared, here = self.prepared, self.world.place.node_name
        bad, lost = ([file for node, file in files if node == here] for files in (prepared.bad, prepared.lost))
        return brought_again(prepared.destination, bad, lost)

    def verify(self) -> None:
        """Read again what is at the destination; ``EveryRankError`` names the first bad file and the number of them.

        Collective.
        """
        node, destination = self.world.place.node_name, self.prepared.destination
        bad, unchecked = damaged(destination, self.options.threads, self.world, quiet=True)
        if unchecked and self.world.place.rank == 0 and not self.quiet:
            print_line(unchecked_line(unchecked))
        here = [file for name, file in bad if name == node]

        def judge() -> None:
            if here:
                more = f", and {len(here) - 1} more" if len(here) > 1 else ""
                problem = f"does not hold what landed there: {here[0].name}: {here[0].problem}{more}"
                raise DataError(destination, problem, "check the disk, and stage again with --repair")

        together(self.world, judge)

    def report(self, landings: Landings, before: IoCounters | None, after: IoCounters | None) -> StagingReport:
        """The report, with the figures of all ranks."""
        options, place = self.options, self.world.place
        self.timer.stop()
        phases = self.timer.summary()
        seconds = phases.pop("wall")
        rank_report = RankReport(
            node=place.node_name, rank=place.rank, counters=self.counters, phases_s=phases, seconds=seconds,
            cache=cache_state(before, after, self.counters.bytes_read, filesystem_type(options.source)),
            tier=storage(self.prepared.destination).tier, threads=options.threads, way=self.way,
            timeline=landings.timeline,
        )  # fmt: skip
        mended = [(place.node_name, file) for file in self.repairs()[0]] if place.local_rank == 0 else []
        everywhere = self.world.all_gather(mended) if self.prepared.bad else []
        return StagingReport(
            source=str(options.source), destination=options.destination, placement=options.placement,
            path=options.path, transform=options.transform, verify=options.verify, flushed=True,
            repaired=[{"node": node, **asdict(file)} for part in everywhere for node, file in part],
            ranks=self.world.all_gather(rank_report),
        )  # fmt: skip
