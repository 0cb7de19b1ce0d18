"""Who reads what and where it lands; pure arithmetic on a listing, the same on every rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from staging.listing import Listing

EVERY_NODE = -1
"""The home of an entry that all nodes get."""
ITSELF = -1
"""The reading node of an entry that each landing node reads for itself."""


@dataclass(frozen=True)
class Plan:
    """For each entry of ``listing``: its home node, the node that reads it, and the lane that handles it.

    A lane is a local rank: entry ``e`` is read by rank ``lane[e]`` of its reading node and written by rank
    ``lane[e]`` of each node that it lands on, so that nodes exchange along lanes and never within themselves.
    ``lanes`` is the least number of ranks that a node has; other ranks have nothing to do.
    """

    listing: Listing
    nodes: int
    lanes: int
    home: NDArray[np.int32]
    reading_node: NDArray[np.int32]
    lane: NDArray[np.int32]

    def lands_on(self, node: int) -> NDArray[np.int64]:
        """Entries that land on ``node``, in order."""
        return np.flatnonzero((self.home == EVERY_NODE) | (self.home == node))
