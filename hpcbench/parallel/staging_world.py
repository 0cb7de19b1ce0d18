"""The ranks of a run as the staging layer sees them, whoever launched them."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from hpcbench.parallel.group import Group
from staging.ranks.mpi_world import places
from staging.ranks.world import Alone, World, this_node

T = TypeVar("T")


class GroupWorld:
    """Staging over the process group of a run: the exchange needs no MPI library. Making one is collective.

    With ``beside`` it uses a process group of its own, so that a thread may stage while the run continues.
    """

    def __init__(self, group: Group, *, beside: bool = False) -> None:
        launch = group.launch
        self._size = launch.world_size
        self._processes = dist.new_group(backend="gloo") if beside else None
        seen = self.all_gather((launch.node_rank, this_node()))
        self.place = places(*zip(*seen, strict=True))[launch.rank]

    def barrier(self) -> None:
        """Wait until all ranks have reached this call."""
        # A run in double precision sets torch's default type for a while, which also affects a concurrent thread.
        dist.all_reduce(torch.zeros(1, dtype=torch.float32), group=self._processes)

    def all_gather(self, value: T) -> list[T]:
        """The values of all ranks, in rank order."""
        values: list[Any] = [None] * self._size
        dist.all_gather_object(values, value, group=self._processes)
        return values

    def broadcast(self, value: T) -> T:
        """The value of rank 0."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._processes)
        return box[0]

    def send_receive(self, sent: Any, to: int, received: Any, source: int) -> None:
        """Send ``sent`` to rank ``to`` while filling ``received`` from rank ``source``; ``None`` skips either."""
        works = []
        if received is not None and len(received):
            works.append(dist.irecv(as_tensor(received), src=source, group=self._processes))
        if sent is not None and len(sent):
            works.append(dist.isend(as_tensor(sent), dst=to, group=self._processes))
        for work in works:
            if work is not None:
                work.wait()


def as_tensor(buffer: Any) -> torch.Tensor:
    """The bytes of a buffer as a tensor on the host, without a copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a read-only buffer is only read
        return torch.frombuffer(buffer, dtype=torch.uint8)


def staging_world(group: Group, *, beside: bool = False) -> World:
    """The world of a run's ranks; collective. ``beside``: for a thread that stages while the run continues."""
    return GroupWorld(group, beside=beside) if group.world_size > 1 else Alone()
