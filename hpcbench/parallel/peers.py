"""The ranks that share a sample or batch-norm statistics, and the messages between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

Message = tuple[int, Tensor]
"""The place of another rank among the peers, and the contiguous tensor that is sent to it or received from it."""


class Peers(Protocol):
    """Some ranks of a run, each with its place; all call the same methods in the same order."""

    rank: int
    size: int

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """Start an exchange that all peers take part in; returns a function that waits for it."""
        ...

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Replace ``tensor``, which is contiguous, with its sum over all peers; returns it."""
        ...

    def stacked(self, local: Tensor) -> Tensor:
        """``local``, (n,), of all peers, by place: (size, n)."""
        ...


class ProcessPeers:
    """The processes of a group of ``torch.distributed``."""

    def __init__(self, processes: Any) -> None:
        self.processes = processes
        self.rank = dist.get_rank(processes)
        self.size = dist.get_world_size(processes)
        self.ranks = dist.get_process_group_ranks(processes)

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As in ``Peers``."""
        operations = [dist.P2POp(dist.isend, part, self.ranks[other], self.processes) for other, part in sends]
        operations += [dist.P2POp(dist.irecv, part, self.ranks[other], self.processes) for other, part in receives]
        works = dist.batch_isend_irecv(operations) if operations else []
        kept = [part for _, part in sends]

        def wait() -> None:
            for work in works:
                work.wait()
            kept.clear()

        return wait

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """As in ``Peers``."""
        dist.all_reduce(tensor, group=self.processes)
        return tensor

    def stacked(self, local: Tensor) -> Tensor:
        """As in ``Peers``."""
        parts = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(parts, local, group=self.processes)
        return torch.stack(parts)
