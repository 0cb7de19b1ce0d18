"""A bounded queue between two threads of a pipeline, which ends when either side fails."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from staging.threads.worker import Worker

T = TypeVar("T")

LOOK_S = 1.0
STOPPING_S = 4.0
"""How long a pipeline that failed waits for its threads; one may hang in a system call."""


class BrokenPipelineError(Exception):
    """Another part of the pipeline failed; its error is the one to report."""


class Failure:
    """The first error of a pipeline's threads, which all its channels watch."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._channels: list[Channel[object]] = []

    def fail(self, error: BaseException) -> None:
        """Remember ``error``, if it is the first and not an echo of one, and wake all waiting threads."""
        with self._lock:
            if self.error is None or isinstance(self.error, BrokenPipelineError):
                self.error = error
        for channel in self._channels:
            channel.wake()

    def watch(self, channel: Channel[object]) -> None:
        """Wake threads that wait at ``channel`` when something fails."""
        self._channels.append(channel)

    def clear_channels(self) -> None:
        """Drop what is left in all channels, once the threads have ended."""
        for channel in self._channels:
            channel.clear()

    def check(self) -> None:
        """Raise the first error, if there is one."""
        if self.error is not None:
            raise self.error


class Channel(Generic[T]):
    """Holds up to ``capacity`` items. ``put_stalled_s`` and ``get_stalled_s``: how long putters and getters waited."""

    def __init__(self, capacity: int, failure: Failure) -> None:
        self.put_stalled_s = 0.0
        self.get_stalled_s = 0.0
        self._items: deque[T] = deque()
        self._capacity = capacity
        self._closed = False
        self._failure = failure
        self._lock = threading.RLock()
        """Entered separately: a signal that raises as the condition is entered would leave it locked."""
        self._change = threading.Condition(self._lock)
        failure.watch(self)  # type: ignore[arg-type]

    def put(self, item: T) -> None:
        """Add an item, waiting for room. Raises ``BrokenPipelineError`` if another thread has failed."""
        with self._lock:
            if len(self._items) >= self._capacity and self._failure.error is None:
                start = time.perf_counter()
                self._change.wait_for(lambda: len(self._items) < self._capacity or self._failure.error is not None)
                self.put_stalled_s += time.perf_counter() - start
            self._check()
            self._items.append(item)
            self._change.notify_all()

    def get(self) -> T | None:
        """The oldest item, waiting for one; ``None`` when the channel is closed and empty."""
        with self._lock:
            if not self._items and not self._closed and self._failure.error is None:
                start = time.perf_counter()
                self._change.wait_for(lambda: self._items or self._closed or self._failure.error is not None)
                self.get_stalled_s += time.perf_counter() - start
            self._check()
            if not self._items:
                return None
            item = self._items.popleft()
            self._change.notify_all()
            return item

    def __iter__(self) -> Iterator[T]:
        while (item := self.get()) is not None:
            yield item

    def close(self) -> None:
        """Announce that no more items come."""
        with self._lock:
            self._closed = True
            self._change.notify_all()

    def clear(self) -> None:
        """Drop the items in it: reference cycles would keep buffers in memory until the garbage collector runs."""
        with self._lock:
            self._items.clear()

    def wake(self) -> None:
        """Let waiting threads look again."""
        with self._lock:
            self._change.notify_all()

    def _check(self) -> None:
        if self._failure.error is not None:
            raise BrokenPipelineError from None


@contextmanager
def joined(threads: Sequence[Worker], failure: Failure) -> Iterator[None]:
    """Wait for ``threads`` after the body; an error in it ends them.

    Raises the first error of the pipeline, or what interrupts the waiting, such as a signal.
    """
    try:
        yield
        for thread in threads:
            while failure.error is None and not thread.wait(LOOK_S):
                pass
    except BaseException as error:
        failure.fail(error)
    deadline = time.monotonic() + STOPPING_S
    for thread in threads:
        thread.wait(deadline - time.monotonic())
    failure.check()
