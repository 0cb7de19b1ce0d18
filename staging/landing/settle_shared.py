"""Gives their names to files that the ranks of a node wrote together, once all of them have written their parts."""

from __future__ import annotations

from staging.landing.shared_files import SharedFiles
from staging.landing.sinks import Landed
from staging.ranks.collective_errors import together
from staging.ranks.world import World


def settle_shared(shared: SharedFiles, world: World) -> list[Landed]:
    """Close the shared files, and name them; returns what landed on the first rank of each node, nothing on the others.

    Collective. Raises ``EveryRankError`` for what ``SharedFiles.close`` and ``SharedFiles.settle`` refuse on any rank.
    """
    place = world.place
    together(world, shared.close)
    found = world.all_gather((place.node, shared.written))

    def name_all() -> list[Landed]:
        if place.local_rank != 0:
            return []
        here = [written for node, written in found if node == place.node]
        entries = sorted({entry for written in here for entry in written})
        return [shared.settle(entry, [written[entry] for written in here if entry in written]) for entry in entries]

    return together(world, name_all)
