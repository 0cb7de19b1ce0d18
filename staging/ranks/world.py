"""The processes that stage together: who they are, which share a node, and how they communicate."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a process is: its rank among all, its node among the nodes, its rank among those of its node."""

    rank: int
    size: int
    node: int
    nodes: int
    local_rank: int
    local_size: int
    node_name: str


class World(Protocol):
    """All processes of a staging. All ranks call every method but ``send_receive`` together, in the same order."""

    place: Place

    def barrier(self) -> None:
        """Wait until all ranks are here."""

    def all_gather(self, value: T) -> list[T]:
        """The values of all ranks, in rank order."""

    def broadcast(self, value: T) -> T:
        """The value of rank 0."""

    def send_receive(self, sent: Any, to: int, received: Any, source: int) -> None:
        """Send the buffer ``sent`` to rank ``to`` while ``received`` is filled from rank ``source``; ``None``: not."""


class Alone:
    """A world of one process, without MPI."""

    def __init__(self, node_name: str | None = None) -> None:
        self.place = Place(0, 1, 0, 1, 0, 1, node_name or this_node())

    def barrier(self) -> None:
        """Nobody to wait for."""

    def all_gather(self, value: T) -> list[T]:
        """The one value."""
        return [value]

    def broadcast(self, value: T) -> T:
        """The value."""
        return value

    def send_receive(self, sent: Any, to: int, received: Any, source: int) -> None:
        """Never called: with one node nothing travels."""
        raise RuntimeError("a world of one process has no one to send to")


def this_node() -> str:
    """The name of this node; Slurm's name if several of its nodes share a machine."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
