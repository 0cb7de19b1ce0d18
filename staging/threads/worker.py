"""A thread that one can wait for while signals raise errors in the one that waits."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker(threading.Thread):
    """A daemon thread that does ``work``.

    Where the handler of a signal raises an error inside ``join``, Python 3.11 and 3.12 take the thread for one that has
    ended, and ``is_alive`` and the next ``join`` say so. ``wait`` keeps to the truth.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._has_ended = False
        self._running = threading.Lock()

    def start(self) -> None:
        """Start the thread. Raises ``RuntimeError`` where the system has none left."""
        self._running.acquire()
        try:
            super().start()
        except RuntimeError:
            self._running.release()
            raise

    def run(self) -> None:
        """Do the work."""
        try:
            self._work()
        finally:
            self._has_ended = True
            self._running.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, for so long at most; whether it does not run, also since it was never started."""
        if not self._has_ended and self._running.acquire(timeout=max(0.0, seconds)):
            self._running.release()
            return True
        return self._has_ended
