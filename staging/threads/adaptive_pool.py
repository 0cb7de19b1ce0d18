"""Threads that share work: all of them at once, or only as many as keep one core busy.

Python runs one thread at a time, and half of the work on a small file is Python's. Threads that never wait for storage
only contend for its lock, and four take more than twice as long as one. Where a metadata server takes a millisecond to
answer, four are four times as fast.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from staging.threads.channel import Failure, joined
from staging.threads.worker import Worker

T = TypeVar("T")
R = TypeVar("R")

LOOK_S = 0.01
"""How often a pool that may grow is checked, in seconds."""

SMALL_BYTES = 128 << 10
"""Below this mean file size, Python's part of the work outweighs the system's, which runs without Python's lock:
between two tmpfs, files of 64 KiB take one thread 0.06 ms each and four 0.10 ms, those of 256 KiB 0.17 and 0.14 ms."""

BUSY = 0.7
"""Threads that together use this much of a core gain nothing from one more."""


def run_in_threads(work: Callable[[], None], threads: int, failure: Failure, *, at_once: bool) -> None:
    """Run ``work`` in at most ``threads`` threads besides this one; returns when all have ended.

    This one only waits, so that an error that a signal raises in it does not interrupt work between two lines, such as
    closing a file and forgetting its number, which another file may have by then. Unless ``at_once``, one more thread
    starts each time that those at work were found to wait. Raises the first error.
    """
    clocks: list[int] = []
    ended = threading.Event()

    def enter() -> None:
        clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        try:
            work()
        except BaseException as error:
            failure.fail(error)
        finally:
            ended.set()

    workers = [Worker(enter, f"stage-{number}") for number in range(threads)]
    started: list[Worker] = []

    def launch(worker: Worker) -> None:
        started.append(worker)
        worker.start()

    def grow() -> None:
        try:
            for worker in workers[1:]:
                if not _waits(clocks, ended):
                    return
                launch(worker)
        except BaseException as error:
            failure.fail(error)

    with joined(started, failure):
        for worker in workers if at_once else workers[:1]:
            launch(worker)
        if not at_once and threads > 1:
            launch(Worker(grow, "stage-pool"))


def map_in_threads(function: Callable[[T], R], items: Sequence[T], threads: int, *, at_once: bool = False) -> list[R]:
    """``function`` of each item, in their order, by at most ``threads`` threads, as in ``run_in_threads``.

    Raises the first error; no item is begun after it.
    """
    results: dict[int, R] = {}
    numbers, failure = itertools.count(), Failure()

    def work() -> None:
        while failure.error is None and (number := next(numbers)) < len(items):
            results[number] = function(items[number])

    run_in_threads(work, max(1, min(threads, len(items))), failure, at_once=at_once)
    return [results[number] for number in range(len(items))]


def run_in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns, done by another thread so that no signal interrupts it halfway; its errors are raised.

    An error that a signal raises here comes out when the work is done, or takes longer than ``STOPPING_S``.
    """
    return map_in_threads(lambda _: work(), [None], 1)[0]


def are_small(size: int, files: int) -> bool:
    """Whether ``files`` files of ``size`` bytes in total are for one thread, unless it waits."""
    return size < SMALL_BYTES * files


def _waits(clocks: list[int], ended: threading.Event) -> bool:
    """Return ``True`` once the threads with these clocks use too little of a core, or ``False`` when work has ended."""
    before, used = time.perf_counter(), _processor_s(clocks)
    while not ended.wait(LOOK_S):
        now, spent = time.perf_counter(), _processor_s(clocks)
        if spent - used < BUSY * (now - before):
            return True
        before, used = now, spent
    return False


def _processor_s(clocks: list[int]) -> float:
    total = 0.0
    for clock in tuple(clocks):
        try:
            total += time.clock_gettime(clock)
        except OSError:  # that thread has ended
            continue
    return total
