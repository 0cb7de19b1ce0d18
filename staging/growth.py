"""Compares the disk space of files with holes at the destination with that at the source."""

from __future__ import annotations

import os
from contextlib import suppress

from staging.landing.transform_exclusions import matcher
from staging.prepare import Prepared
from staging.source.sources import STAT_BLOCK


def count_growth(prepared: Prepared) -> None:
    """Count the disk space of files that landed on this node as they are, and of their sources. Collective.

    Each rank takes a part of the files. This happens after the flush: until then some filesystems have not allocated
    a file's blocks.
    """
    options, place, names = prepared.options, prepared.world.place, prepared.listing.names
    taken: dict[int, int] = {}
    for taken_of_rank in prepared.world.all_gather(prepared.source.sparse):
        taken |= taken_of_rank
    entries = sorted(entry for entry in taken if prepared.wanted[entry])
    if options.transform and entries:
        is_plain = matcher(options.plain, options.transform) if options.plain else lambda name: None
        entries = [entry for entry in entries if is_plain(names[entry])]
    for entry in entries[place.local_rank :: place.local_size]:
        with suppress(OSError):  # a removed file takes no space
            landed = os.lstat(prepared.destination / names[entry])
            prepared.counters.sparse_landed_bytes += landed.st_blocks * STAT_BLOCK
            prepared.counters.sparse_source_bytes += taken[entry]
