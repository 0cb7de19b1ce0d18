"""Time of messages against their size, on the available ranks: sums over all, and exchanges with neighbours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls

from hpcbench.characterisation.model import Curve, CurvePoint, Link
from hpcbench.characterisation.timing import synchronizer
from hpcbench.parallel.group import Group
from hpcbench.parallel.node_peers import open_peers
from hpcbench.parallel.peers import Peers

SIZES = tuple(4**power for power in range(5, 14))
"""1 KiB to 64 MiB."""
REPEATS = 7
LONGEST_S = 0.5
"""Once a message takes longer than this, no larger ones are sent."""


def message_curves(group: Group, device: torch.device, timeout_s: float, largest: int) -> list[Curve]:
    """Curves among the ranks of a node and, if there are several nodes, among all ranks; sizes up to about ``largest``.

    Empty for a single rank. Collective; all nodes measure at once.
    """
    curves: list[Curve] = []
    sizes = [size for size in SIZES if size <= 4 * largest] or [SIZES[0]]
    for processes, ranks, nodes in subsets(group):
        link: Link = "between nodes" if nodes > 1 else "within a node"
        buffer = torch.zeros(sizes[-1] // 4, device=device)

        def reduce(size: int, buffer: torch.Tensor = buffer, processes: Any = processes) -> None:
            dist.all_reduce(buffer[: size // 4], group=processes)

        peers = open_peers(processes, group, timeout_s)
        other = torch.empty_like(buffer)

        def swap(size: int, peers: Peers = peers, buffer: torch.Tensor = buffer, other: torch.Tensor = other) -> None:
            exchange(peers, buffer[: size // 4], other[: size // 4])

        for operation, work in (("all_reduce", reduce), ("exchange", swap)):
            points = measured(work, sizes, group, device)
            curves.append(curve(operation, ranks, nodes, link, points))  # type: ignore[arg-type]
    return curves


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


def exchange(peers: Peers, sent: torch.Tensor, received: torch.Tensor) -> None:
    """Send to the next peer and receive from the one before, as halos travel."""
    following, before = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size
    peers.start([(following, sent)], [(before, received)])()


def measured(
    work: Callable[[int], None], sizes: Sequence[int], group: Group, device: torch.device
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
    operation: Literal["all_reduce", "exchange"], ranks: int, nodes: int, link: Link, points: Sequence[CurvePoint]
) -> Curve:  # fmt: skip
    """The points with latency and rate, neither below zero: a least-squares fit of relative errors."""
    seconds = np.array([point.seconds for point in points])
    sizes = np.array([float(point.bytes) for point in points])
    # scaled so that both unknowns are near one
    scale = sizes.max() / seconds.max()
    (latency, slope), _ = nnls(np.stack([1e-6 / seconds, sizes / scale / seconds], axis=1), np.ones(len(points)))
    rate = scale / slope if slope > 0 else sizes.max() / seconds.min()
    return Curve(operation, ranks, nodes, link, tuple(points), float(latency) * 1e-6, float(rate))
