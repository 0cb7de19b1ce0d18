"""Plans who reads what and where it lands; pure arithmetic on a listing, the same on every rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from staging.errors import InputError
from staging.options import Path_, Placement
from staging.planning.balance import least_loaded, runs
from staging.planning.plan_summary import NodeFlow, PlanSummary
from staging.planning.slices import Slices, cut
from staging.source.listing import Listing, Selection

EVERY_NODE = -1
"""The home of an entry that all nodes get."""
ITSELF = -1
"""The reading node of an entry that each landing node reads for itself."""
PAIRS = r"^(.*?)(?:_data\.npy|_label\.npy|\.idx)$|^(.*/)?(?:data|label)-([^/]*\.npy)$"
"""Files of one sample have names with the same groups, joined: two arrays, or a file and its index."""
ROWS = rf"^(\d+)_[^/]*\.npy$|{PAIRS}"
"""The same for the rows of one HDF5 file: all arrays of a row are one sample."""


@dataclass(frozen=True)
class Plan:
    """The home node of each entry of ``listing``, and the reading node and the lane of each slice.

    A lane is a local rank: slice ``s`` is read by rank ``lane[s]`` of its reading node and written by rank
    ``lane[s]`` of each node that it lands on, so that nodes exchange along lanes and never within themselves.
    In an exchange, ``lanes`` is the smallest number of ranks on any node, and other ranks have nothing to do. Otherwise
    it is the number of ranks of the node that the plan is for, and slices and lanes are right for that node alone.
    """

    listing: Listing
    nodes: int
    lanes: int
    home: NDArray[np.int32]
    slices: Slices
    """The entries, in order; large ones may be cut."""
    reading_node: NDArray[np.int32]
    lane: NDArray[np.int32]
    ranks_per_node: tuple[int, ...] = ()
    """Ranks of each node; empty: as many as there are lanes."""
    lanes_per_node: tuple[int, ...] = ()
    """Lanes of each node; empty: ``lanes``."""

    def lands_on(self, node: int) -> NDArray[np.int64]:
        """Entries that land on ``node``, in order."""
        return np.flatnonzero((self.home == EVERY_NODE) | (self.home == node))

    def summary(self, missing: NDArray[np.bool_] | None = None) -> PlanSummary:
        """Files and bytes that each node reads, sends, receives and lands.

        ``missing`` says for each entry whether a node still lacks it, and so whether it moves; ``None``: all do.
        """
        moving = np.ones(len(self.listing), np.int64) if missing is None else missing.astype(np.int64)
        sizes = self.listing.sizes * moving
        files, landing = self._per_node(self.home, moving), self._per_node(self.home, sizes)
        exchanged = len(sizes) > 0 and self.reading_node[0] != ITSELF
        parts = self.slices.bytes * moving[self.slices.entry]
        read = self._per_node(self.reading_node, parts) if exchanged else landing
        sent = received = np.zeros(self.nodes, np.int64)
        if exchanged:
            home = self.home[self.slices.entry]
            everywhere = home == EVERY_NODE
            # round the ring each node passes on all but what its successor read
            ring = self._per_node(self.reading_node, np.where(everywhere, parts, 0))
            away = np.where(~everywhere & (home != self.reading_node), parts, 0)
            received = ring.sum() - ring + self._per_node(np.maximum(home, 0), away)
            sent = ring.sum() - np.roll(ring, -1) + self._per_node(self.reading_node, away)
        lanes = self.lanes_per_node or (self.lanes,) * self.nodes
        idle = [ranks - lane_count for ranks, lane_count in zip(self.ranks_per_node or lanes, lanes, strict=True)]
        columns = (column.tolist() for column in (files, landing, read, sent, received))
        flows = tuple(NodeFlow(*row) for row in zip(range(self.nodes), *columns, idle, strict=True))
        return PlanSummary(int(moving.sum()), int(sizes.sum()), min(lanes), flows, max(lanes))

    def _per_node(self, node: NDArray[np.int32], values: NDArray[np.int64]) -> NDArray[np.int64]:
        total = np.full(self.nodes, values[node < 0].sum())
        np.add.at(total, node[node >= 0], values[node >= 0])
        return total


def make_plan(
    listing: Listing,
    nodes: int,
    ranks_per_node: Sequence[int],
    placement: Placement,
    path: Path_,
    seed: int,
    group_by: str | None = PAIRS,
    shuffle: int = 0,
    replicate_also: Sequence[str] = (),
    may_cut: NDArray[np.bool_] | None = None,
    node: int = 0,
    contiguous: bool = False,
) -> Plan:
    """A plan for ``nodes`` nodes with ``ranks_per_node`` ranks each; ``direct``: as ``node`` carries it out.

    ``shard``: homes are drawn from ``seed`` and balanced by bytes: two nodes differ by at most the largest file, or
    group of files that belong together. Such files have the same groups of the regular expression ``group_by``
    (``None``: each file by itself) and share a home; each ``shuffle`` of a seed is another draw. Names that match a
    shell pattern of ``replicate_also`` have every node as their home. ``contiguous``: homes are not drawn; the listing
    is cut into one run for each node, equal in bytes likewise. ``exchange``: each node reads a contiguous run
    of the listing, within the largest file of the mean. Large entries among those that ``may_cut`` marks (``None``:
    none) are cut where runs divide, so that ranks read equally. Raises ``InputError`` for an invalid count, placement,
    path or expression.
    """
    _check(nodes, ranks_per_node, placement, path, seed)
    if replicate_also and placement != "shard":
        raise InputError(f"replicate_also ({' '.join(replicate_also)}) needs placement shard; leave it out")
    if contiguous and (placement != "shard" or shuffle):
        raise InputError(
            "contiguous needs placement shard, whose homes are then not drawn; leave out it or the shuffle"
        )
    count = len(listing)
    home = np.full(count, EVERY_NODE, np.int32)
    if placement == "shard":
        sharded = np.flatnonzero(~matching(listing, replicate_also))
        home[sharded] = homes(listing.take(sharded), nodes, seed, shuffle, group_by, contiguous)
    may_cut = np.zeros(count, np.bool_) if may_cut is None else may_cut
    slices = Slices.whole(listing.sizes)
    if path == "direct":
        return with_lanes(listing, ranks_per_node, home, slices, np.full(count, ITSELF, np.int32), may_cut, node)
    slices, _ = cut(slices, nodes, np.zeros(count, np.int64), may_cut)
    reading_node = runs(slices.bytes, nodes, np.zeros(len(slices), np.int64))
    return with_lanes(listing, ranks_per_node, home, slices, reading_node, may_cut)


def with_lanes(
    listing: Listing,
    ranks_per_node: Sequence[int],
    home: NDArray[np.int32],
    slices: Slices,
    reading_node: NDArray[np.int32],
    may_cut: NDArray[np.bool_],
    node: int | None = None,
) -> Plan:
    """The plan for these homes and readers: the data between two nodes are cut into runs, one for each lane.

    With ``node``, nothing goes between nodes: each has as many lanes as ranks, and the runs are those of ``node``.
    """
    nodes = len(ranks_per_node)
    lanes_per_node = (min(ranks_per_node),) * nodes if node is None else tuple(ranks_per_node)
    lanes = lanes_per_node[node or 0]
    pairs = reading_node.astype(np.int64) * (nodes + 1) + home[slices.entry]
    slices, origin = cut(slices, lanes, pairs, may_cut[slices.entry])
    reading_node, home_of_slice = reading_node[origin], home[slices.entry]
    lane = runs(slices.bytes, lanes, pairs[origin])
    # pairs with few files would all use the same lanes, so each begins at another one
    paired = (home_of_slice != EVERY_NODE) & (reading_node != ITSELF)
    lane = np.where(paired, (lane + reading_node + home_of_slice) % np.int32(lanes), lane)
    return Plan(listing, nodes, lanes, home, slices, reading_node, lane, tuple(ranks_per_node), lanes_per_node)


def matching(listing: Listing, patterns: Sequence[str]) -> NDArray[np.bool_]:
    """For each entry, whether its name matches one of the shell patterns."""
    if not patterns:
        return np.zeros(len(listing), np.bool_)
    selection = Selection(include=tuple(patterns))
    return np.concatenate([np.zeros(0, np.bool_), *(selection.matches(block) for block in listing.names.blocks())])


def _check(nodes: int, ranks_per_node: Sequence[int], placement: str, path: str, seed: int) -> None:
    if nodes < 1:
        raise InputError(f"nodes ({nodes}) must be at least 1")
    if len(ranks_per_node) != nodes or min(ranks_per_node) < 1:
        raise InputError(
            f"ranks per node ({list(ranks_per_node)}) must be {nodes} numbers from 1 on, one for each node"
        )
    if placement not in ("replicate", "shard"):
        raise InputError(f"placement ({placement}) must be replicate or shard")
    if path not in ("direct", "exchange"):
        raise InputError(f"path ({path}) must be direct or exchange")
    if seed < 0:
        raise InputError(f"seed ({seed}) must be at least 0")


def homes(
    listing: Listing, nodes: int, seed: int, shuffle: int = 0, group_by: str | None = PAIRS, contiguous: bool = False
) -> NDArray[np.int32]:
    """The node of each entry: balanced by bytes, drawn from ``seed`` and ``shuffle``, one node for each sample.

    ``contiguous``: not drawn; the samples in the order of the listing, cut into a run for each node.
    """
    if shuffle:
        seed = int(np.random.SeedSequence([seed, shuffle]).generate_state(1, np.uint64)[0])
    group = _groups(listing, group_by)
    if group is None or not len(listing):
        return spread_over(nodes, listing.sizes, seed, contiguous)
    _, number = np.unique(group, return_inverse=True)
    sizes = np.zeros(int(number.max()) + 1, np.int64)
    np.add.at(sizes, number, listing.sizes)
    return spread_over(nodes, sizes, seed, contiguous)[number]


def spread_over(nodes: int, sizes: NDArray[np.int64], seed: int, contiguous: bool) -> NDArray[np.int32]:
    """The node of each sample of these sizes."""
    if contiguous:
        return runs(sizes, nodes, np.zeros(len(sizes), np.int64))
    return least_loaded(sizes, nodes, seed)


def _groups(listing: Listing, group_by: str | None) -> NDArray[np.int64] | None:
    """For each entry, the first entry of its group; ``None`` if each is by itself."""
    blob = listing.names.blob
    if group_by is None or (group_by == PAIRS and b".npy" not in blob and b".idx" not in blob):
        return None
    try:
        pattern = re.compile(group_by)
    except re.error as error:
        raise InputError(f"group_by ({group_by}) must be a regular expression: {error}") from None
    if pattern.groups < 1:
        raise InputError(f"group_by ({group_by}) must have a group in parentheses, such as {PAIRS}")
    first: dict[str, int] = {}
    matches = ((name, pattern.match(name)) for name in listing.names)
    keys = ("".join(match.groups("")) if match else name for name, match in matches)
    return np.fromiter((first.setdefault(key, entry) for entry, key in enumerate(keys)), np.int64, len(listing))
