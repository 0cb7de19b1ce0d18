"""Opens the source of a staging: a folder that is walked or indexed, or one HDF5 file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from staging.counters import Counters
from staging.errors import InputError
from staging.options import StageOptions
from staging.ranks.collective_errors import together
from staging.ranks.world import World
from staging.source.listing import Listing, Selection
from staging.source.page_cache import drop_cache
from staging.source.sources import Source, TreeSource
from staging.storage.destination import expand

HDF5 = (".h5", ".hdf5")


def open_source(options: StageOptions, world: World, counters: Counters, names: Sequence[str] | None = None) -> Source:
    """The source with its listing, the same on all ranks; collective."""
    root = options.source
    together(world, lambda: refuse_absent(root))
    selection = Selection(options.include, options.exclude, options.first)
    if root.is_file():
        return together(world, lambda: rows_of(options, selection))
    skipped = ""
    if options.index is not None:
        if options.follow_links or options.hidden:
            raise InputError(f"index ({options.index}) says which files there are: leave out --follow-links, --hidden")
        listing = indexed(options.index, selection, names, world)
    else:
        from staging.source.linked_folders import LinkRules
        from staging.source.walk import Kinds, list_names, list_tree

        if names is None:
            links = LinkRules(destinations(options, world) if options.follow_links else ())
            kinds = Kinds(options.follow_links, options.hidden, links)
            walked = list_tree(root, world, options.include, options.exclude, options.first, kinds)
        else:
            walked = list_names(root, world, names)
        counters.metadata_operations += walked.metadata_operations
        listing, skipped = walked.listing, walked.skipped
    return TreeSource(root, listing, cold=options.cold, retries=options.retries, skipped=skipped)


def destinations(options: StageOptions, world: World) -> set[Path]:
    """The destinations of all ranks; collective."""
    place = world.place
    destination = together(world, lambda: expand(options.destination, place.node_name, place.rank, os.environ))
    return set(world.all_gather(destination))


def refuse_absent(root: Path) -> None:
    """Raise ``InputError`` unless there is a source at ``root``."""
    try:
        root.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{root} does not exist; name a folder or an HDF5 file as the source") from None
    except OSError as error:
        raise InputError(f"{root} cannot be looked at ({error.strerror}); check its permissions, or its name") from None


def indexed(index: Path, selection: Selection, names: Sequence[str] | None, world: World) -> Listing:
    """The listing in a dataset index, which rank 0 reads for all."""
    from staging.source.index import read_index

    def read() -> Listing | None:
        if world.place.rank != 0:
            return None
        listing = selection.of(read_index(index), index)
        return listing if names is None else only(listing, names, index)

    listing = world.broadcast(together(world, read))
    assert listing is not None
    return listing


def only(listing: Listing, names: Sequence[str], index: Path) -> Listing:
    """The entries of ``names``. Raises ``InputError`` if the index lacks one."""
    wanted = set(names)
    entries = np.flatnonzero(np.fromiter((name in wanted for name in listing.names), bool, len(listing)))
    if len(entries) < len(wanted):
        absent = min(wanted - set(listing.names))
        raise InputError(f"{index} does not list {absent}; make the index again with `hpcbench data index`")
    return listing.take(entries)


def rows_of(options: StageOptions, selection: Selection) -> Source:
    """The rows of one large HDF5 file."""
    path = options.source
    if path.suffix not in HDF5:
        raise InputError(f"{path} is a file; a source is a folder, or one HDF5 file ({', '.join(HDF5)})")
    if selection != Selection():
        raise InputError(f"include, exclude and first choose among files; {path} is one file: leave them out")
    if options.index is not None:
        raise InputError(f"index ({options.index}) lists the files of a folder; {path} is one file: leave it out")
    from staging.source.hdf5_source import HDF5Source

    if options.cold:
        drop_cache([path])
    return HDF5Source(path, retries=options.retries)
