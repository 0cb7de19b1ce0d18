"""Time of messages against their size, on the available ranks, and of the messages of a step, each kind alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, get_args

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls

from hpcbench.characterisation.model import Curve, CurveOperation, CurvePoint, Link, Message
from hpcbench.characterisation.timing import synchronizer
from hpcbench.parallel.group import Group
from hpcbench.parallel.node_peers import open_peers
from hpcbench.parallel.peers import Peers
from hpcbench.parallel.shard_messages import _all_gather, _reduce_scatter

SIZES = tuple(4**power for power in range(5, 14))
"""1 KiB to 64 MiB."""
REPEATS = 7
NUMBER = 4
"""Bytes of the numbers that are sent, float32."""
LONGEST_S = 0.5
"""Once a message takes longer than this, no larger ones are sent."""


def messages_alone(
    messages: Sequence[Message], group: Group, device: torch.device, timeout_s: float
) -> tuple[tuple[Curve, ...], tuple[Message, ...]]:
    """Curves of sums and exchanges, and ``messages`` with the time of one of each kind, at its mean size.

    Curves are among the ranks of a node and, if there are several nodes, among all ranks, with a ``lane_exchange``
    where each of them has the same number of ranks, more than one. Their sizes are those of the messages, and up to
    about four times the largest. A message is timed among the ranks of the curve with its link. A single rank has no
    curves and no times. Collective; all nodes measure at once.
    """
    curves, alone_s = [], {}
    largest = max(map(mean_size, messages), default=0)
    sizes = [size for size in SIZES if size <= 4 * largest] or [SIZES[0]]
    launch = group.launch
    lane = lane_neighbours(group.all_gather_object((launch.node_rank, launch.local_rank)), group.rank)
    for processes, ranks, nodes in subsets(group):
        link: Link = "between nodes" if nodes > 1 else "within a node"
        works = senders(processes, ranks, group, device, timeout_s, max(*sizes, largest),
                        lane if nodes > 1 else None)  # fmt: skip
        for operation, work in works.items():
            own = {mean_size(message) for message in messages if (message.operation, message.link) == (operation, link)}
            in_curve = operation in get_args(CurveOperation)
            points = measured(work, sorted({*sizes, *own} if in_curve else own), group, device)
            alone_s.update({(operation, link, point.bytes): point.seconds for point in points})
            if in_curve:
                curves.append(curve(operation, ranks, nodes, link, points))  # type: ignore[arg-type]
    return tuple(curves), tuple(
        replace(message, alone_s=alone_s.get((message.operation, message.link, mean_size(message))))
        for message in messages
    )


def mean_size(message: Message) -> int:
    """Bytes of one message, at least one number."""
    return max(NUMBER, message.bytes // message.count)


def senders(
    processes: Any, ranks: int, group: Group, device: torch.device, timeout_s: float, most: int,
    lane: tuple[int, int] | None,
) -> dict[str, Callable[[int], object]]:  # fmt: skip
    """For each operation of messages, what sends one of so many bytes, up to ``most``, among ``processes``.

    The bytes are those of the sum, of what a rank sends, and of the whole that is gathered or scattered. ``lane`` is
    that of ``lane_neighbours``.
    """
    numbers = most // NUMBER + ranks
    whole, other = (torch.zeros(numbers, device=device) for _ in range(2))
    peers = open_peers(processes, group, timeout_s)
    ring = ((peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size)

    def parts(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        part = max(1, size // NUMBER // ranks)
        return whole[: part * ranks], other[:part]

    def gather(size: int) -> None:
        together, part = parts(size)
        _all_gather(together, part, group=processes)

    def scatter(size: int) -> None:
        together, part = parts(size)
        _reduce_scatter(part, together, group=processes)

    works: dict[str, Callable[[int], object]] = {
        "all_reduce": lambda size: dist.all_reduce(whole[: size // NUMBER], group=processes),
        "exchange": lambda size: exchange(peers, ring, whole[: size // NUMBER], other[: size // NUMBER]),
        "all_gather": gather,
        "reduce_scatter": scatter,
    }
    if lane is not None:
        works["lane_exchange"] = lambda size: exchange(peers, lane, whole[: size // NUMBER], other[: size // NUMBER])
    return works


def subsets(group: Group) -> list[tuple[Any, int, int]]:
    """Process groups of this node and of all ranks, with their numbers of ranks and nodes; collective."""
    if group.world_size == 1:
        return []
    launch = group.launch
    process_groups: list[tuple[Any, int, int]] = []
    equal = group.all_gather_object(launch.local_size).count(launch.local_size) == group.world_size
    if launch.nodes > 1 and launch.local_size > 1 and equal:
        nodes = group.all_gather_object(launch.node_rank)
        members = [[rank for rank, node in enumerate(nodes) if node == node_rank] for node_rank in range(launch.nodes)]
        node_group, _ = dist.new_subgroups_by_enumeration(members)  # type: ignore[no-untyped-call]
        process_groups.append((node_group, launch.local_size, 1))
    return [*process_groups, (dist.group.WORLD, group.world_size, launch.nodes)]


def lane_neighbours(places: Sequence[tuple[int, int]], rank: int) -> tuple[int, int] | None:
    """The ranks with the number of ``rank`` within their node, on the next node and on the one before.

    ``places`` has the node and the number within it of every rank. ``None`` where there is one node, where each node
    has one rank, or where their numbers of ranks differ.
    """
    rank_at = {place: number for number, place in enumerate(places)}
    nodes, numbers = (sorted(set(each)) for each in zip(*places, strict=True))
    if len(nodes) == 1 or len(numbers) == 1 or len(rank_at) != len(nodes) * len(numbers):
        return None
    node, number = places[rank]
    place = nodes.index(node)
    return rank_at[nodes[(place + 1) % len(nodes)], number], rank_at[nodes[place - 1], number]


def exchange(peers: Peers, neighbours: tuple[int, int], sent: torch.Tensor, received: torch.Tensor) -> None:
    """Send to the first of ``neighbours`` and receive from the second, as halos travel."""
    following, before = neighbours
    peers.start([(following, sent)], [(before, received)])()


def measured(
    work: Callable[[int], object], sizes: Sequence[int], group: Group, device: torch.device
) -> list[CurvePoint]:  # fmt: skip
    """The time of each size on the slowest rank, medians over repeats; collective."""
    wait, points = synchronizer(device), []
    for size in sizes:
        work(size)
        seconds = []
        for _ in range(REPEATS):
            group.barrier()
            wait()
            started = time.perf_counter()
            work(size)
            wait()
            seconds.append(time.perf_counter() - started)
        slowest = [max(repeat) for repeat in zip(*group.all_gather_object(seconds), strict=True)]
        points.append(CurvePoint(size, median(slowest)))
        if points[-1].seconds > LONGEST_S:
            break
    return points


def curve(
    operation: CurveOperation, ranks: int, nodes: int, link: Link, points: Sequence[CurvePoint]
) -> Curve:  # fmt: skip
    """The points with latency and rate, neither below zero: a least-squares fit of relative errors."""
    seconds = np.array([point.seconds for point in points])
    sizes = np.array([float(point.bytes) for point in points])
    # scaled so that both unknowns are near one
    scale = sizes.max() / seconds.max()
    (latency, slope), _ = nnls(np.stack([1e-6 / seconds, sizes / scale / seconds], axis=1), np.ones(len(points)))
    rate = scale / slope if slope > 0 else sizes.max() / seconds.min()
    return Curve(operation, ranks, nodes, link, tuple(points), float(latency) * 1e-6, float(rate))
