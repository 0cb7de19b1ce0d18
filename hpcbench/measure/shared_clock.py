"""The monotonic clocks of all nodes on one scale, so that arrival times on different nodes can be compared.

Ranks of one machine read the same clock. The offset between two machines is taken from the fastest of several round
trips: the answer is assumed to be read at its midpoint (Cristian, "Probabilistic clock synchronization", 1989). One
rank of each machine measures, along a binomial tree, so n machines need log2(n) rounds, whose errors add up.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from hpcbench.parallel.group import Group

ROUND_TRIPS = 8
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TIME_NAMESPACE = Path("/proc/self/ns/time")


class SharedClock:
    """Converts times of this rank's ``clock`` to the scale of rank 0's machine.

    All ranks of ``group`` construct it together. ``machine`` names a machine with one monotonic clock. The offsets are
    measured at construction and by every ``measure``; between two measurements they are assumed to drift evenly.
    """

    def __init__(
        self, group: Group, clock: Callable[[], float] = time.perf_counter, machine: str | None = None
    ) -> None:
        self.group, self.clock = group, clock
        names = group.all_gather_object(machine_name() if machine is None else machine)
        machines = list(dict.fromkeys(names))
        self._leaders = [names.index(name) for name in machines]
        """The rank of each machine that measures."""
        self._place = machines.index(names[group.rank])
        self._points = [(0.0, 0.0)]
        """When the offset was measured and what it was, for the last two measurements."""
        self.measure()

    def measure(self) -> None:
        """Measure the offsets again; collective. If all ranks share one machine there are none, and nothing is sent."""
        if len(self._leaders) == 1:
            return
        offsets = self._measured()
        self._points = [*self._points, (self.clock(), offsets[self._place])][-2:]
        if self._points[0] == (0.0, 0.0):
            self._points = self._points[1:]

    def common(self, times: torch.Tensor) -> torch.Tensor:
        """Convert times of this rank's clock, in seconds, to what rank 0's machine would have read."""
        (first, before), (last, offset) = self._points[0], self._points[-1]
        drift = (offset - before) / (last - first) if last > first else 0.0
        return times + offset + (times - last) * drift

    def _measured(self) -> list[float]:
        """The seconds to add to the clock of each machine, the same on all ranks."""
        count = len(self._leaders)
        from_parent = torch.zeros(count, dtype=torch.float64)
        if self.group.rank == self._leaders[self._place]:
            for place in range(1, count):
                parent = parent_of(place)
                if self._place == place:
                    from_parent[place] = self._ask(self._leaders[parent])
                elif self._place == parent:
                    self._answer(self._leaders[place])
        self.group.all_reduce_sum(from_parent)
        offsets = [0.0] * count
        for place in range(1, count):
            offsets[place] = offsets[parent_of(place)] + float(from_parent[place])
        return offsets

    def _ask(self, rank: int) -> float:
        """Seconds to add to this clock to get that of ``rank``."""
        shortest, offset = float("inf"), 0.0
        told = torch.zeros(1, dtype=torch.float64)
        for _ in range(ROUND_TRIPS):
            begin = self.clock()
            dist.send(told, rank)
            dist.recv(told, rank)
            end = self.clock()
            if end - begin < shortest:
                shortest, offset = end - begin, float(told) - (begin + end) / 2
        return offset

    def _answer(self, rank: int) -> None:
        room = torch.zeros(1, dtype=torch.float64)
        for _ in range(ROUND_TRIPS):
            dist.recv(room, rank)
            dist.send(torch.tensor([self.clock()], dtype=torch.float64), rank)


def parent_of(place: int) -> int:
    """Return the parent's place in a binomial tree: ``place`` without its highest bit."""
    return place - (1 << (place.bit_length() - 1))


def machine_name() -> str:
    """Return a name that all processes which read one monotonic clock share."""
    try:
        return f"{BOOT_ID.read_text().strip()} {TIME_NAMESPACE.readlink()}"
    except OSError:
        return socket.gethostname()
