"""A world whose ranks are threads of this process: the exchange without MPI, for quick tests of its arithmetic."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from staging.ranks.world import Place

T = TypeVar("T")


class ThreadWorld:
    """One rank among threads; ``run_ranks`` makes them."""

    def __init__(self, place: Place, shared: Shared) -> None:
        self.place = place
        self._shared = shared

    def barrier(self) -> None:
        self._shared.barrier.wait(10)

    def all_gather(self, value: T) -> list[T]:
        self._shared.values[self.place.rank] = value
        self.barrier()
        values = list(self._shared.values)
        self.barrier()
        return values

    def broadcast(self, value: T) -> T:
        return self.all_gather(value)[0]

    def send_receive(self, sent: Any, to: int, received: Any, source: int) -> None:
        if sent is not None:
            self._shared.mail[self.place.rank, to].put(bytes(sent))
        if received is not None:
            data = self._received(self._shared.mail[source, self.place.rank])
            assert len(data) == len(received)
            received[:] = data

    def _received(self, mail: queue.Queue[bytes]) -> bytes:
        """What arrives within ten seconds, unless another rank has failed."""
        for _ in range(200):
            with contextlib.suppress(queue.Empty):
                return mail.get(timeout=0.05)
            if self._shared.barrier.broken:
                break
        raise queue.Empty


class Shared:
    """What the ranks have in common."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.values: list[Any] = [None] * ranks
        self.mail: dict[tuple[int, int], queue.Queue[bytes]] = {
            (a, b): queue.Queue() for a in range(ranks) for b in range(ranks)
        }


def run_ranks(ranks_per_node: list[int], work: Callable[[ThreadWorld], T]) -> list[T]:
    """``work`` on every rank at once; returns what each returns, raises the first error."""
    size = sum(ranks_per_node)
    shared = Shared(size)
    places = [(node, local, count) for node, count in enumerate(ranks_per_node) for local in range(count)]
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        node, local, count = places[rank]
        world = ThreadWorld(Place(rank, size, node, len(ranks_per_node), local, count, f"node{node}"), shared)
        try:
            results[rank] = work(world)
        except BaseException as error:
            errors.append(error)
            shared.barrier.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real = [error for error in errors if not isinstance(error, threading.BrokenBarrierError | queue.Empty)]
    if errors:
        raise (real or errors)[0]
    return results
