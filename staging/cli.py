"""The command line of staging, for ``python -m staging`` and ``hpcbench stage`` alike."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from staging.errors import DataError, EveryRankError, InputError
from staging.number_options import MOST_FILES, MOST_NODES, add_real, add_whole
from staging.one_line import one_line
from staging.print_line import print_line
from staging.ranks.signals import Interrupted, Interrupts

if TYPE_CHECKING:
    from staging.options import StageOptions
    from staging.ranks.abort import AbortWatcher
    from staging.ranks.world import World

T = TypeVar("T")

HELP = "bring a dataset to node-local storage, fast, safely and measured"
DESCRIPTION = """\
Bring a dataset from a shared filesystem to storage of each node's own, and measure it.

  hpcbench stage /project/cosmoflow /tmp/cosmoflow
      copies the folder; run again after an interruption, it brings only what is missing
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --path exchange
      every byte is read once in the job, and then travels between the nodes by MPI
  mpiexec -n 8 hpcbench stage /project/set '/local/{node}/part' --placement shard --seed 1
      each node gets its part, balanced by bytes
  hpcbench stage /project/set /local/set --plan-only
      says what would go where, and whether it fits; nothing is touched
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --probe
      measures what storage, network and decoding can do here, to which later reports compare
  hpcbench stage /project/set /local/inflated --include '*.tfrecord' --transform gunzip
      decompresses on the way
  srun -N 16 --ntasks-per-node 4 hpcbench stage --verify-only /local/set
      reads again what staging put there and lists every file that is not what landed
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --repair
      does that, and brings just the bad files again
  srun -N 16 --ntasks-per-node 4 hpcbench stage /project/set /local/set --update --drop-vanished
      follows a source that changed, and removes what vanished from it
  srun -N 16 --ntasks-per-node 4 hpcbench stage --clean /local/set
      removes what staging put there, and nothing else
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("source", nargs="?", metavar="SRC", help="folder, or one HDF5 file")
    parser.add_argument(
        "destination", nargs="?", metavar="DST", help="folder on each node; {node}, {rank} and $VARIABLES are filled in"
    )
    parser.add_argument(
        "--placement",
        choices=("replicate", "shard"),
        default="replicate",
        help="all to every node (default), or a part to each",
    )
    parser.add_argument(
        "--replicate-also",
        action="append",
        default=[],
        metavar="PATTERN",
        help="names that every node gets with --placement shard, too; repeatable",
    )
    parser.add_argument(
        "--path",
        choices=("direct", "exchange"),
        default="direct",
        help="each node reads what it needs (default), or all is read once, then sent by MPI",
    )
    parser.add_argument(
        "--transform",
        default="",
        metavar="NAME",
        help="gunzip, tfrecord-to-npy, hdf5-to-npy, npy-rows, tfrecord-index, untar, package.module:function; a+b "
        "chains",
    )
    parser.add_argument(
        "--plain",
        action="append",
        default=[],
        metavar="PATTERN",
        help="names that the transform leaves as they are, or auto: all that end as none it knows; repeatable",
    )
    add_ways(parser)
    add_modes(parser)


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Options of how data are moved, checked and chosen."""
    add_whole(parser, "--threads", 1, 256, "streams of each rank (default: 4)", default=4)
    add_whole(
        parser,
        "--piece-bytes",
        1,
        2**40,
        "buffer for whole files and for parts of larger ones (default: 8 MiB); what exchange sends at a time",
        default=8 << 20,
    )
    parser.add_argument(
        "--verify",
        choices=("none", "transfer", "reread"),
        default="transfer",
        help="no checksums; CRC32C from the read on (default); and read again at the end",
    )
    parser.add_argument(
        "--write-way",
        choices=("auto", "buffered", "early", "uncached"),
        default="auto",
        help="large files: stored when the system wants; at once; at once and out of memory; as probed (default)",
    )
    parser.add_argument("--include", action="append", default=[], metavar="PATTERN", help="only such names; repeatable")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="no such names; repeatable")
    add_whole(parser, "--first", 1, MOST_FILES, "only the first N files by name")
    parser.add_argument("--follow-links", action="store_true", help="take links to folders as folders")
    parser.add_argument("--hidden", action="store_true", help="take names that begin with a dot, too")
    parser.add_argument("--index", type=Path, metavar="FILE", help="dataset index of `hpcbench data index`")
    add_whole(parser, "--seed", 0, 2**62, "of the placement (default: 0)", default=0)
    parser.add_argument("--cold", action="store_true", help="drop the source's cached pages first, where allowed")
    add_whole(parser, "--simulated-nodes", 1, MOST_NODES, "pretend that the ranks are on N nodes")


def add_modes(parser: argparse.ArgumentParser) -> None:
    """Options of what is done, and what is left of it."""
    parser.add_argument("--plan-only", action="store_true", help="say what would move, and stop")
    parser.add_argument("--probe", action="store_true", help="measure what the parts can do here, and stop")
    parser.add_argument("--probe-first", action="store_true", help="the same, and then stage")
    add_real(parser, "--probe-seconds", 0.01, 86_400, "for a probe (default: 10)", default=10.0, metavar="S")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write all figures as JSON, of a plan, a probe, a staging or --verify-only",
    )
    parser.add_argument(
        "--repair", action="store_true", help="read again what is there first, and bring bad files again"
    )
    parser.add_argument("--update", action="store_true", help="follow a source that changed; what it lost stays here")
    parser.add_argument("--drop-vanished", action="store_true", help="with --update: remove here what it lost")
    parser.add_argument(
        "--verify-only", metavar="DST", help="read again what staging put into DST and list all bad files"
    )
    parser.add_argument("--clean", metavar="DST", help="remove what staging put into DST, and nothing else")


def run(args: argparse.Namespace, on_report: Callable[[dict[str, Any]], None] = lambda _: None) -> int:
    """Stage, plan, probe or clean; returns the exit code. ``on_report`` gets what ``--report`` writes of a staging.

    A signal to end is said here, other errors are the caller's.
    """
    try:
        with Interrupts():
            return dispatch(args, on_report)
    except Interrupted as error:
        if error.speaks:
            print_line(f"staging: aborted: {error}; run it again to go on")
        return error.exit_code


def dispatch(args: argparse.Namespace, on_report: Callable[[dict[str, Any]], None]) -> int:
    """All ranks together do what is asked."""
    said_once(lambda: check(args))
    from staging.ranks.collective_errors import together, watch
    from staging.ranks.mpi_world import mpi_world, one_node_per_rank, simulated

    launched = world = said_once(mpi_world)
    if args.simulated_nodes is not None:
        world = together(world, partial(simulated, world, args.simulated_nodes))
    if "{rank}" in (args.destination or args.clean or args.verify_only or ""):
        world = one_node_per_rank(world)
    with watch(launched, node=world.place.node_name) as watcher:
        together(world, lambda: refuse_report(args.report, world.place.rank))
        if args.clean is not None:
            return clean(args.clean, world)
        if args.verify_only is not None:
            return verify_only(args, world)
        if args.plan_only:
            return plan_only(args, world)
        if args.probe or args.probe_first:
            probe_and_report(args, world)
        return 0 if args.probe else stage_and_report(args, world, watcher, on_report)


def check(args: argparse.Namespace) -> None:
    """Raise ``InputError`` for words that are missing or too many."""
    of_one_folder = {"--clean": args.clean, "--verify-only": args.verify_only}
    given = [name for name, folder in of_one_folder.items() if folder is not None]
    if not given and (args.source is None or args.destination is None):
        raise InputError("stage needs SRC and DST; see --help")
    for what, folder in {
        "SRC": args.source,
        **{f"the folder of {name}": of_one_folder[name] for name in given},
    }.items():
        if folder == "":
            raise InputError(f"{what} is empty: perhaps a variable that is not set; write . for the current folder")
    if given and args.source is not None:
        raise InputError(f"{given[0]} takes one folder and no SRC or DST ({args.source})")
    if args.clean is not None and args.report is not None:
        raise InputError(f"--clean has no figures for --report {args.report}; leave it out")
    modes = {
        **of_one_folder,
        "--plan-only": args.plan_only,
        "--probe": args.probe,
        "--probe-first": args.probe_first,
    }
    if len(both := [name for name, value in modes.items() if value]) > 1:
        raise InputError(f"{' and '.join(both)} exclude one another; give one of them")
    changes = {"--repair": args.repair, "--update": args.update, "--drop-vanished": args.drop_vanished}
    if given and (idle := [name for name, value in changes.items() if value]):
        raise InputError(f"{idle[0]} is for a staging, and {given[0]} is none; leave one of them out")
    if args.drop_vanished and not args.update:
        raise InputError("--drop-vanished is for a staging that follows its source: give --update, too")


def refuse_report(path: Path | None, rank: int) -> None:
    """Raise ``InputError`` where the first rank could not write the report in the end."""
    if path is None or rank != 0:
        return
    if path.exists():
        raise InputError(f"{path} exists; name another --report file")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written; name a --report file in a folder that is yours")


def said_once(step: Callable[[], T]) -> T:
    """Run ``step``, whose bad input all ranks find for themselves, before they can talk; the first reports it."""
    from staging.ranks.launch import is_first_rank

    try:
        return step()
    except EveryRankError:
        raise
    except InputError as error:
        raise EveryRankError(str(error), speaks=is_first_rank(os.environ)) from None


def options_of(args: argparse.Namespace) -> StageOptions:
    """The options that a command line gives."""
    from staging.options import StageOptions

    return StageOptions(
        source=Path(args.source), destination=args.destination, placement=args.placement, path=args.path,
        transform=args.transform, plain=tuple(args.plain), threads=args.threads, piece_bytes=args.piece_bytes,
        verify=args.verify, include=tuple(args.include), exclude=tuple(args.exclude), first=args.first,
        index=args.index, seed=args.seed, cold=args.cold, follow_links=args.follow_links, hidden=args.hidden,
        replicate_also=tuple(args.replicate_also), repair=args.repair, update=args.update,
        drop_vanished=args.drop_vanished, write_way=args.write_way,
    )  # fmt: skip


def stage_and_report(
    args: argparse.Namespace, world: World, watcher: AbortWatcher, on_report: Callable[[dict[str, Any]], None]
) -> int:
    """Stage, write the figures down, and print them."""
    from staging.ranks.collective_errors import names
    from staging.stage import stage

    try:
        report = stage(options_of(args), world, watcher=watcher)
    except DataError as error:
        node = world.place.node_name
        if world.place.size > 1 or names(str(error), node):
            raise  # among several ranks the one that tells of it names the node
        raise InputError(f"{node}: {error}") from None
    if world.place.rank == 0:
        found = report.as_dict()
        if args.report is not None:
            write_json(args.report, found)
        on_report(found)
        print(report.table())
    return 0


def probe_and_report(args: argparse.Namespace, world: World) -> None:
    """Measure what the parts can do, and print that."""
    from staging.probing.probe import probe

    ceilings = probe(options_of(args), world, budget_s=args.probe_seconds)
    if world.place.rank == 0:
        if args.report is not None and args.probe:
            write_json(args.report, ceilings.as_dict())
        print(ceilings.table(), flush=True)


def write_json(path: Path, found: dict[str, Any]) -> None:
    """Write a report into a new file."""
    with path.open("x") as file:
        json.dump(found, file, indent=1)


def plan_only(args: argparse.Namespace, world: World) -> int:
    """Print what would move, and whether it fits. Raises ``InputError`` where it does not."""
    from staging.counters import Counters
    from staging.phase_timer import PhaseTimer
    from staging.prepare import check_room, prepare, settled
    from staging.units import human

    options = settled(options_of(args))
    prepared = prepare(options, world, PhaseTimer(), Counters(), must_fit=False)
    first = world.place.rank == 0
    if first:
        there = int((~prepared.moving).sum())
        also = f"; {there} files are there already" if there else ""
        summary = prepared.plan.summary(prepared.moving)
        if args.report is not None:
            write_json(args.report, summary.as_dict())
        print(summary.table() + also, flush=True)
        if prepared.source.skipped:
            print(prepared.source.skipped, flush=True)
    need = check_room(
        prepared.destination, prepared.listing, prepared.wanted, prepared.make_sink, options.transform, world
    )
    if first:
        after = f" after {options.transform}, as estimated" if options.transform else ""
        print(f"it fits on every node, which takes at most {human(need)}{after}")
        print(f"at most {human(prepared.buffer_bytes)} of pieces in each rank's memory")
    return 0


def verify_only(args: argparse.Namespace, world: World) -> int:
    """Print what is bad on any node; exit code 2 where something is."""
    from staging.ranks.collective_errors import together
    from staging.storage.destination import expand
    from staging.verification import verify

    place = world.place
    destination = together(world, lambda: expand(args.verify_only, place.node_name, place.rank, os.environ))
    found = verify(destination, args.threads, world)
    if place.rank == 0:
        if args.report is not None:
            write_json(args.report, found.as_dict())
        print(found.table())
    return 0 if found.is_good else 2


def clean(template: str, world: World) -> int:
    """Remove a staged dataset from every node."""
    from staging.ledger.clean import Cleaned
    from staging.ledger.clean import clean as remove
    from staging.ranks.collective_errors import together
    from staging.storage.destination import expand
    from staging.units import human

    place = world.place

    def remove_here() -> tuple[Path, Cleaned] | None:
        destination = expand(template, place.node_name, place.rank, os.environ)
        return (destination, remove(destination)) if place.local_rank == 0 else None

    for found in world.all_gather(together(world, remove_here)):
        if found is None or place.rank != 0:
            continue
        destination, cleaned = found
        print(f"{destination}: removed {cleaned.files} files, {human(cleaned.bytes)}")
        for name in cleaned.left:
            print_line(f"left {one_line(name)}, which is not as staging put it there")
    return 0
