"""The ranks that share a sample, or batch-norm statistics, and what they send each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

Message = tuple[int, Tensor]
"""The place of another rank among the peers, and what is sent to it or filled by it: contiguous."""


class Peers(Protocol):
    """Some ranks of a run, each with a place among them; all call the same methods in the same order."""

    rank: int
    size: int

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """Start an exchange that all of them take part in; the result waits for it."""
        ...

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Replace ``tensor``, contiguous, by its sum over all of them; returns it."""
        ...

    def stacked(self, own: Tensor) -> Tensor:
        """``own`` (n,) of all of them, by place: (size, n)."""
        ...


class ProcessPeers:
    """The processes of a group of ``torch.distributed``."""

    def __init__(self, processes: Any) -> None:
        self.processes = processes
        self.rank = dist.get_rank(processes)
        self.size = dist.get_world_size(processes)
        self.ranks = dist.get_process_group_ranks(processes)

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As of ``Peers``."""
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
        """As of ``Peers``."""
        dist.all_reduce(tensor, group=self.processes)
        return tensor

    def stacked(self, own: Tensor) -> Tensor:
        """As of ``Peers``."""
        parts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(parts, own, group=self.processes)
        return torch.stack(parts)
