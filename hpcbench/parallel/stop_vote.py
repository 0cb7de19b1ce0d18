"""The ranks agree, at no cost to a step, on whether one of them got a signal, and whether there is time to write.

The same vote says whether one of them has recorded so many messages that all must exchange their times.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from hpcbench.parallel.group import Group, Work


class StopVote:
    """A vote of all ranks in each step, which is counted in the next step: nobody waits for a vote that has just begun.

    It has a process group of its own, on the host, so that it meets no other collective operation and no accelerator
    waits for it. Making one is collective. ``timeout_s`` bounds each vote; unset, torch's own limit applies.
    ``waiting`` is entered while this host waits for a rank that has not cast its vote yet.
    """

    def __init__(
        self,
        group: Group,
        timeout_s: float | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._alone = group.world_size == 1
        self._waiting = waiting
        self.any_full = False
        """Whether a rank was ``full`` in the votes that the last ``poll`` counted; the same on all ranks."""
        self._cast: tuple[Work, Tensor] | None = None
        limit = None if timeout_s is None else timedelta(seconds=timeout_s)
        self._processes = None if self._alone else dist.new_group(backend="gloo", timeout=limit)

    def poll(self, received: int | None, *, full: bool = False) -> int | None:
        """The signal for which all ranks stop now, if any; the same on all ranks at the same call. Collective.

        ``received`` is the signal that this rank has got so far. It counts from the next call on; with one process, at
        once. If ranks get different signals within a step, the highest number wins on all: SIGTERM, then SIGUSR1,
        then SIGINT. Which one came first is not known, since the clocks of nodes differ by more than that. ``full``,
        which is voted on likewise, says that this rank can keep few more messages. ``any_full`` has the result, and
        the caller deals with it before the next call.
        """
        if self._alone:
            self.any_full = full
            return received
        stop = self.close()
        if stop is None:
            # Signals decide the maximum; if there are none, the lowest bit does. ``full`` need not be said twice.
            vote = torch.tensor(2 * (received or 0) + (full and not self.any_full), dtype=torch.int32)
            work = dist.all_reduce(vote, op=dist.ReduceOp.MAX, group=self._processes, async_op=True)
            self._cast = work, vote
        return stop

    def agree(self, received: int | None, *, waits: bool) -> tuple[int | None, bool]:
        """The signal for which all ranks stop now, as in ``poll`` but at once, and whether any rank ``waits``.

        Collective, and slower than ``poll``: every rank waits for the last one.
        """
        if self._alone:
            return received, waits
        before = self.close()
        both = torch.tensor([received or 0, waits], dtype=torch.int32)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self._processes)
        return before or int(both[0]) or None, bool(both[1])

    def close(self) -> int | None:
        """Count the last vote, so that none is in flight; returns its result. Collective; polling may continue."""
        self.any_full = False
        if self._cast is None:
            return None
        work, vote = self._cast
        self._cast = None
        with self._waiting():
            work.wait()
        self.any_full = bool(vote % 2)
        return int(vote) // 2 or None

    def agree_min(self, value: float) -> float:
        """The smallest ``value`` of all ranks, for instance of the seconds left to write. Collective."""
        if self._alone:
            return value
        smallest = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(smallest, op=dist.ReduceOp.MIN, group=self._processes)
        return float(smallest)
