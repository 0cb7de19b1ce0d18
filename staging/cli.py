"""The command line of staging, shared by ``python -m staging`` and ``hpcbench stage``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from staging.cli_options import check, options_of
from staging.errors import DataError, EveryRankError, InputError
from staging.one_line import one_line
from staging.print_line import print_line
from staging.ranks.signals import Interrupted, Interrupts

if TYPE_CHECKING:
    from staging.ranks.abort import AbortWatcher
    from staging.ranks.world import World

T = TypeVar("T")
AGAIN = "these files may be staged ones or others; stage again from the same source and clean then, or remove them"
LOST = f"its manifest is lost, and {AGAIN}"
UNFINISHED = f"its last staging did not come to its end, and {AGAIN}"
"""What to do if `--clean` does not know what to remove."""


def run(args: argparse.Namespace, on_report: Callable[[dict[str, Any]], None] = lambda _: None) -> int:
    """Stage, plan, probe or clean; returns the exit code. ``on_report`` gets what ``--report`` writes about a staging.

    This function reports a signal to end; the caller reports other errors.
    """
    try:
        with Interrupts():
            return dispatch(args, on_report)
    except Interrupted as error:
        if error.speaks:
            print_line(f"staging: aborted: {error}; run it again to continue")
        return error.exit_code


def dispatch(args: argparse.Namespace, on_report: Callable[[dict[str, Any]], None]) -> int:
    """Do what is asked, on all ranks together."""
    said_once(lambda: check(args))
    from staging.ranks.collective_errors import together, watch
    from staging.ranks.launch import detect
    from staging.ranks.mpi_world import mpi_world, one_node_per_rank, simulated
    from staging.ranks.unwatched import unwatched

    with unwatched(said_once(partial(detect, os.environ))):
        launched = world = said_once(mpi_world)
        if args.simulated_nodes is not None:
            world = together(world, partial(simulated, world, args.simulated_nodes))
        if "{rank}" in (args.destination or args.clean or args.verify_only or ""):
            world = one_node_per_rank(world)
        watching = watch(launched, node=world.place.node_name, until_exit=True)
    with watching as watcher:
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


def refuse_report(path: Path | None, rank: int) -> None:
    """Raise ``InputError`` if the first rank could not write the report at the end."""
    if path is None or rank != 0:
        return
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); name another --report file") from None
    else:
        raise InputError(f"{path} exists; name another --report file")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written; name a --report file in a folder that is yours")


def check_locale() -> None:
    """Refuse a locale in which Python cannot open files by all names that a source may have. Raises ``InputError``."""
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8":
        raise InputError(
            f"names of files are {encoding} in this locale, and must be utf-8; set PYTHONUTF8=1, or LC_ALL=C.UTF-8"
        )


def said_once(step: Callable[[], T]) -> T:
    """Run ``step``, in which each rank finds bad input before ranks can communicate; the first rank reports it."""
    from staging.ranks.launch import is_first_rank

    try:
        return step()
    except EveryRankError:
        raise
    except InputError as error:
        raise EveryRankError(str(error), speaks=is_first_rank(os.environ)) from None


def stage_and_report(
    args: argparse.Namespace, world: World, watcher: AbortWatcher, on_report: Callable[[dict[str, Any]], None]
) -> int:
    """Stage, then write and print the figures."""
    from staging.ranks.collective_errors import names
    from staging.stage import stage

    try:
        report = stage(options_of(args), world, watcher=watcher)
    except DataError as error:
        node = world.place.node_name
        if world.place.size > 1 or names(str(error), node):
            raise  # with several ranks, the one that reports it names the node
        raise InputError(f"{node}: {error}") from None
    if world.place.rank == 0:
        figures = report.as_dict()
        if args.report is not None:
            write_json(args.report, figures)
        on_report(figures)
        print(report.table())
    return 0


def probe_and_report(args: argparse.Namespace, world: World) -> None:
    """Measure what each part can do, and print the result."""
    from staging.probing.probe import probe

    ceilings = probe(options_of(args), world, budget_s=args.probe_seconds)
    if world.place.rank == 0:
        if args.report is not None and args.probe:
            write_json(args.report, ceilings.as_dict())
        print(ceilings.table(), flush=True)


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """Write a report into a new file."""
    with path.open("x") as file:
        json.dump(figures, file, indent=1)


def plan_only(args: argparse.Namespace, world: World) -> int:
    """Print what would move, and whether it fits. Raises ``InputError`` if it does not fit."""
    from staging.counters import Counters
    from staging.phase_timer import PhaseTimer
    from staging.prepare import check_room, prepare, settled
    from staging.units import counted, human

    options = settled(options_of(args))
    prepared = prepare(options, world, PhaseTimer(), Counters(), must_fit=False)
    first = world.place.rank == 0
    if first:
        there = int((~prepared.moving).sum())
        also = f"; {counted(there, 'file')} {'is' if there == 1 else 'are'} there already" if there else ""
        summary = prepared.plan.summary(prepared.moving)
        if args.report is not None:
            write_json(args.report, summary.as_dict())
        print(summary.table() + also, flush=True)
        if prepared.source.skipped:
            print(prepared.source.skipped, flush=True)
    need = check_room(prepared.destination, prepared.listing, prepared.wanted, prepared.make_sink, options, world)
    if first:
        after = f" after {options.transform}, as estimated" if options.transform else ""
        print(f"it fits on every node, which takes at most {human(need)}{after}")
        print(f"at most {human(prepared.buffer_bytes)} of pieces in each rank's memory")
    return 0


def verify_only(args: argparse.Namespace, world: World) -> int:
    """Print what is bad on any node; returns exit code 2 if anything is."""
    from staging.ranks.collective_errors import together
    from staging.storage.destination import expand
    from staging.verification import verify

    place = world.place
    destination = together(world, lambda: expand(args.verify_only, place.node_name, place.rank, os.environ))
    verification = verify(destination, args.threads, world)
    if place.rank == 0:
        if args.report is not None:
            write_json(args.report, verification.as_dict())
        print(verification.table())
    return 0 if verification.is_good else 2


def clean(template: str, world: World) -> int:
    """Remove a staged dataset from every node; returns exit code 2 if no record says any longer which files it has."""
    from staging.ledger.clean import Cleaned
    from staging.ledger.clean import clean as remove
    from staging.ranks.collective_errors import together
    from staging.storage.destination import expand
    from staging.units import counted, human

    place = world.place

    def remove_here() -> tuple[Path, Cleaned] | None:
        destination = expand(template, place.node_name, place.rank, os.environ)
        return (destination, remove(destination)) if place.local_rank == 0 else None

    removals = [removal for removal in world.all_gather(together(world, remove_here)) if removal is not None]
    for destination, cleaned in removals if place.rank == 0 else ():
        print(f"{destination}: removed {counted(cleaned.files, 'file')}, {human(cleaned.bytes)}")
        lost = cleaned.keeps_books == "lost"
        why = "which the manifest does not name any more" if lost else "which is not as staging put it there"
        for name in cleaned.left:
            print_line(f"left {one_line(name)}, {why}")
        if cleaned.keeps_books:
            print_line(f"{destination}: {LOST if lost else UNFINISHED}")
    return 2 if any(cleaned.keeps_books for _, cleaned in removals) else 0
