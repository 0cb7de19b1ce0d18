"""Gives their names to files that the ranks of a node wrote together, once all of them have written their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staging.landing.shared_files import RANGE, Part, SharedFiles, Written
from staging.landing.sinks import Landed
from staging.ranks.collective_errors import together
from staging.ranks.world import Place, World

FILE = np.dtype([("entry", np.int64), ("device", np.uint64), ("number", np.uint64), ("ranges", np.int64)])
"""A file that a rank has written a part of: the entry, the file's identity, and the number of ranges."""
LARGEST_MESSAGE = 1 << 28


def settle_shared(shared: SharedFiles, world: World, places: Sequence[Place]) -> list[Landed]:
    """Close the shared files, and name them; returns what landed on the first rank of each node, nothing on the others.

    ``places`` are those of all ranks. Collective. Raises ``EveryRankError`` for what ``SharedFiles.close`` and
    ``SharedFiles.settle`` refuse on any rank.
    """
    together(world, shared.close)
    parts = gather_parts(shared.written, world, places)
    return together(world, lambda: [shared.settle(entry, parts[entry]) for entry in sorted(parts)])


def gather_parts(written: dict[int, Written], world: World, places: Sequence[Place]) -> dict[int, list[Part]]:
    """What the ranks of a node have ``written``, by entry, on its first rank; nothing on the others. Collective.

    Empties ``written``. No rank receives anything of another node.
    """
    place = world.place
    files, ranges = pack(written)
    local = sorted((peer for peer in places if peer.node == place.node), key=lambda peer: peer.local_rank)
    if place.local_rank != 0:
        for array in (np.array([len(files), len(ranges)]), files, ranges):
            send(array, world, local[0].rank)
        return {}
    parts: dict[int, list[Part]] = {}
    unpack(files, ranges, parts)
    for other in local[1:]:
        file_count, range_count = receive(2, np.dtype(np.int64), world, other.rank).tolist()
        files = receive(file_count, FILE, world, other.rank)
        unpack(files, receive(range_count, RANGE, world, other.rank), parts)
    return parts


def pack(written: dict[int, Written]) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The files that are written, as ``FILE``, and the ranges of all of them, as ``RANGE``; empties ``written``."""
    files = np.array([(entry, *file.identity, len(file)) for entry, file in written.items()], FILE)
    ranges, position = np.empty(int(files["ranges"].sum()), RANGE), 0
    for entry, count in zip(files["entry"].tolist(), files["ranges"].tolist(), strict=True):
        ranges[position : position + count] = written.pop(entry).part().ranges
        position += count
    return files, ranges


def unpack(files: NDArray[np.void], ranges: NDArray[np.void], parts: dict[int, list[Part]]) -> None:
    """Add what ``pack`` returned on one rank to ``parts``."""
    position = 0
    for entry, device, number, count in files.tolist():
        parts.setdefault(entry, []).append(Part((device, number), ranges[position : position + count]))
        position += count


def send(array: NDArray[Any], world: World, rank: int) -> None:
    """Send all of an array to ``rank``, which calls ``receive``."""
    data = array.view(np.uint8).data
    for start in range(0, len(data), LARGEST_MESSAGE):
        world.send_receive(data[start : start + LARGEST_MESSAGE], rank, None, rank)


def receive(count: int, dtype: np.dtype[Any], world: World, rank: int) -> NDArray[Any]:
    """An array of ``count`` values that ``rank`` sends."""
    array = np.empty(count, dtype)
    data = array.view(np.uint8).data
    for start in range(0, len(data), LARGEST_MESSAGE):
        world.send_receive(None, rank, data[start : start + LARGEST_MESSAGE], rank)
    return array
