"""Finds what the nodes already have of a plan, and what they hold that is gone from the source."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from staging.errors import DataError
from staging.landing.sinks import UNSET, Landed
from staging.landing.transform_exclusions import landed_names
from staging.ledger.durable_batch import sync_filesystem
from staging.ledger.journal import Journal
from staging.ledger.manifest import Manifest, has_manifest, is_inside, load_records
from staging.ledger.records import Records, is_as_landed
from staging.ledger.verify import BadFile
from staging.options import StageOptions
from staging.planning.plan import Plan
from staging.ranks.collective_errors import together
from staging.ranks.world import Place, World
from staging.storage.destination_folder import DestinationFolder


@dataclass(frozen=True)
class Present:
    """What this node lacks of a plan, and what any node lacks."""

    wanted: NDArray[np.bool_]
    """Entries that this node lacks."""
    moving: NDArray[np.bool_]
    """Entries that some node lacks."""
    changed: int
    """Entries of this node that have changed in the source since they landed; counted on its first rank."""
    stale: list[Landed]
    """Files in this node's manifest from entries that it lacks, and that land again; on its first rank."""


def look(plan: Plan, world: World, destination: Path, options: StageOptions, bad: Collection[str] = ()) -> Present:
    """Compare the manifest of this node, and the files there, with the plan; collective.

    ``bad`` are files of this node that count as absent. Raises ``EveryRankError`` if a node holds a file that the plan
    would not put there, unless ``options.update`` says that the source may have lost it.
    """
    place, number = world.place, len(plan.listing)
    entries = plan.lands_on(place.node)
    stale: list[Landed] = []

    def here() -> tuple[NDArray[np.uint8] | None, int]:
        if place.local_rank != 0 or not has_manifest(destination):
            return None, 0
        records = load_records(destination)
        if not options.update:
            refuse_stale(records, plan, entries, destination)
        present, as_they_are = np.zeros(number, np.bool_), not options.transform
        with DestinationFolder(destination) as folder:
            present[entries] = records.complete(plan.listing, entries, folder, bad, as_they_are=as_they_are)
        stale.extend(records.of_sources({plan.listing.names[int(entry)] for entry in entries[~present[entries]]}))
        changed = records.changed(plan.listing, entries, as_they_are=as_they_are) if options.update else 0
        return np.packbits(present), changed

    packed, changed = together(world, here)
    packed_by_node = world.all_gather((place.node, packed))
    present_on = {
        node: np.unpackbits(bits, count=number).astype(bool) for node, bits in packed_by_node if bits is not None
    }
    moving = np.zeros(number, np.bool_)
    for node in range(plan.nodes):
        lacking = np.zeros(number, np.bool_)
        lacking[plan.lands_on(node)] = True
        lacking &= ~present_on.get(node, np.zeros(1, np.bool_))
        moving |= lacking
        if node == place.node:
            wanted = lacking
    return Present(wanted, moving, changed, stale)


def named_before(destination: Path, world: World) -> list[str] | None:
    """The entries from which any node has files, if the caller of the last staging named them; collective.

    ``None`` if options chose them.
    """

    def here() -> list[str] | None:
        if world.place.local_rank != 0 or not has_manifest(destination) or not Journal(destination).was_by_names():
            return None
        entries = {file.source for file in load_records(destination)}
        return sorted(entry for entry in entries if is_inside(destination, entry))

    entries = together(world, here)
    digest = None if entries is None else blake2b(ascii(entries).encode()).digest()
    digests = world.all_gather(digest)
    is_first = digests.index(digest) == world.place.rank  # nodes that have the same entries send them once
    parts = [part for part in world.all_gather(entries if is_first else None) if part is not None]
    return sorted(set[str]().union(*parts)) if parts else None


def refuse_stale(records: Records, plan: Plan, entries: NDArray[np.int64], destination: Path) -> None:
    """Raise ``DataError`` if a file came from no entry of the plan."""
    known = known_to(plan, entries)
    if stale := next((file.name for file in records if file.source not in known), None):
        raise stale_file(destination, stale)


def stale_file(destination: Path, stale: str) -> DataError:
    """The error for a file of an earlier staging that this one would not bring."""
    return DataError(
        destination,
        f"holds {stale}, which this staging would not put there",
        "follow a source that lost files with --update, remove it with `hpcbench stage --clean "
        f"{destination}`, or choose another destination",
    )


def known_to(plan: Plan, entries: NDArray[np.int64]) -> set[str]:
    """Entries whose files may lie on a node on which ``entries`` land."""
    # what a re-shuffle or another draw left here goes to its home first, and is removed here at the end
    return set(plan.listing.names) if (plan.home >= 0).any() else {plan.listing.names[int(e)] for e in entries}


def vanished(plan: Plan, node: int, destination: Path, source: Path) -> list[Landed]:
    """Files of ``node``, after a staging, that the source would no longer produce.

    Their entries are gone from it, or changed and were brought again without producing these files.
    Raises ``DataError`` if the system does not say whether an entry is there.
    """
    listing, entries = plan.listing, plan.lands_on(node)
    columns = zip(listing.mtimes_ns[entries].tolist(), listing.sizes[entries].tolist(), strict=True)
    here = dict(zip(listing.names.take(entries), columns, strict=True))
    known = known_to(plan, entries)

    def is_left(file: Landed) -> bool:
        if file.source not in here:
            return file.source not in known and is_gone(source, file.source)
        mtime_ns, size = here[file.source]
        return file.mtime_ns != mtime_ns or file.source_size not in (UNSET, size)

    return [file for file in load_records(destination) if is_left(file)]


def is_gone(source: Path, entry: str) -> bool:
    """Whether an entry is gone from a source; if the source is one file, always true.

    Raises ``DataError`` if the system does not say.
    """
    if not source.is_dir():
        return True
    try:
        return stat.S_ISDIR(os.lstat(source / entry).st_mode)  # a folder has taken its name
    except FileNotFoundError:
        return True
    except (NotADirectoryError, ValueError):  # the last for a name that no filesystem has
        return True
    except OSError as error:
        problem = f"cannot be looked for ({error.strerror})"
        raise DataError(source / entry, problem, "check that the source can be read") from None


def brought_again(
    destination: Path, bad: Collection[BadFile], lost: Collection[BadFile]
) -> tuple[list[BadFile], list[BadFile]]:
    """After a move, those of this node's ``bad`` files that came again, and those that stay; dropped ones are neither.

    ``lost`` are those whose entries are not in this staging. Another entry may have come without making them.
    """
    records, gone = load_records(destination) if bad else Records(), set(lost)
    named = [file for file in bad if file.name in records]
    stays = [file in gone or records.is_doubted(file.name) for file in named]
    pairs = list(zip(named, stays, strict=True))
    return [file for file, is_bad in pairs if not is_bad], [file for file, is_bad in pairs if is_bad]


def refuse_bad(destination: Path, left: Sequence[BadFile]) -> None:
    """Raise ``DataError`` if there are files that a repair found bad, and could not bring again."""
    if left:
        more = f", and {len(left) - 1} more" if len(left) > 1 else ""
        raise DataError(
            destination,
            f"holds bad files that this staging does not bring: {left[0].name}: {left[0].problem}{more}",
            "remove what is gone from the source with --drop-vanished, or stage with the options that brought them",
        )


def make_way(options: StageOptions, plan: Plan, place: Place, destination: Path) -> int:
    """Before anything moves, remove vanished files that are where a folder must go, or below where a file must go.

    Acts on the first rank of a node; returns how many were removed. Raises ``DataError`` if one of them has to stay.
    """
    if place.local_rank != 0:
        return 0
    entries, landed = plan.lands_on(place.node), landed_names(options.transform, options.plain)
    names = {name for entry in plan.listing.names.take(entries) for name in landed(entry)}
    folders, known = folders_above(names), known_to(plan, entries)
    blocking = [
        file
        for file in load_records(destination)
        if file.source not in known
        and is_inside(destination, file.name)
        and (file.name in folders or not names.isdisjoint(folders_of(file.name)))
    ]
    staying = [file.name for file in blocking if not (options.drop_vanished and is_gone(options.source, file.source))]
    dropped, left = (0, staying) if staying else drop(destination, blocking)
    if left:
        problem = f"holds {left[0]}, where a folder is to be of that name, or a file of the name of its folder"
        raise DataError(destination, problem, "remove it, or what vanished from the source with --drop-vanished")
    return dropped


def drop(destination: Path, files: Collection[Landed]) -> tuple[int, list[str]]:
    """Remove staged files and the folders that this leaves empty, and take the names off the manifest.

    Returns how many were removed, and the names of those that stay because they are not as they landed. The caller must
    hold the destination's lock. A kill can leave names of files that are gone; the next call takes them off.
    """
    if not files:
        return 0, []
    with DestinationFolder(destination) as folder:
        dropped, left = unlink_as_landed(folder, files)
        inside = [file.name for file in files if is_inside(destination, file.name)]
        for above in sorted({above for name in inside for above in folders_of(name)}, key=len, reverse=True):
            before, _, base = above.rpartition("/")
            with suppress(OSError, DataError), folder.reach(before) as descriptor:
                os.rmdir(base, dir_fd=descriptor)  # refused if it is not empty
    sync_filesystem(destination)
    Manifest(destination).remove([file.name for file in files])
    return dropped, left


def unlink_as_landed(folder: DestinationFolder, files: Iterable[Landed]) -> tuple[int, list[str]]:
    """Remove the staged files whose size and time are as they landed.

    Returns how many were removed, and the names of those that stay because they are anything else.
    """
    removed, left = 0, []
    for file in files:
        status = folder.status(file.name) if is_inside(folder.path, file.name) else None
        if is_as_landed(status, file.size, file.landed_ns):
            try:
                folder.unlink(file.name, missing_ok=True)
            except OSError as error:
                problem = f"cannot be removed ({error.strerror})"
                raise DataError(folder / file.name, problem, "check its permissions") from None
            removed += 1
        elif status is not None:
            left.append(file.name)
    return removed, left


def folders_above(names: Iterable[str]) -> set[str]:
    """The folders that lead to any of ``names``."""
    folders = set[str]()
    for name in names:
        above = name.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
    return folders


def folders_of(name: str) -> list[str]:
    """The folders that lead to a name: ``a`` and ``a/b`` for ``a/b/c``."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
