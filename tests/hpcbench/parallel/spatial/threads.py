"""Ranks of a spatial axis as threads of one process, so that a property can try hundreds of layers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any, TypeVar

import torch
from torch import Tensor

from hpcbench.parallel.peers import Message

T = TypeVar("T")
TIMEOUT_S = 60


class ThreadWorld:
    """What the ranks of one axis share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.queues: dict[tuple[int, int], Queue[Tensor]] = {
            (one, other): Queue() for one in range(size) for other in range(size)
        }
        self.values: list[Any] = [None] * size
        self.messages = [0] * size
        self.bytes = [0] * size


class ThreadAxis:
    """One rank of the axis, as ``hpcbench.parallel.peers.Peers`` asks."""

    def __init__(self, world: ThreadWorld, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        for other, part in sends:
            assert part.is_contiguous()
            self.world.messages[self.rank] += part.numel()
            self.world.bytes[self.rank] += part.nbytes
            self.world.queues[self.rank, other].put(part.clone())

        def wait() -> None:
            for other, room in receives:
                part = self.world.queues[other, self.rank].get(timeout=TIMEOUT_S)
                assert part.shape == room.shape
                room.copy_(part)

        return wait

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.world.values[self.rank] = tensor.clone()
        self.world.barrier.wait(TIMEOUT_S)
        total = torch.stack(self.world.values).sum(0)
        self.world.barrier.wait(TIMEOUT_S)
        return tensor.copy_(total)

    def stacked(self, local: Tensor) -> Tensor:
        rows = local.new_zeros(self.size, *local.shape)
        rows[self.rank] = local
        return self.all_reduce(rows)


def on_ranks(sizes: dict[int, int], work: Callable[[dict[int, ThreadAxis]], T]) -> list[T]:
    """``work(axes)`` on each rank of a grid with ``sizes[dim]`` ranks along each dimension; results in rank order.

    Ranks count with the last dimension fastest.
    """
    grid = [[]]
    for dim, size in sizes.items():
        grid = [[*place, (dim, index)] for place in grid for index in range(size)]
    worlds: dict[Any, ThreadWorld] = {}
    every = []
    for place in grid:
        axes = {}
        for dim, index in place:
            line = (dim, tuple(each for each in place if each[0] != dim))
            axes[dim] = ThreadAxis(worlds.setdefault(line, ThreadWorld(sizes[dim])), index)
        every.append(axes)
    with ThreadPoolExecutor(len(every)) as pool:
        return [done.result(TIMEOUT_S) for done in [pool.submit(work, axes) for axes in every]]
