"""A thread that can be waited for while signals raise errors in the waiting thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

ENTER_S = 0.5
"""How long a thread may take to begin its work, after a signal came while it was being started."""


class Worker(threading.Thread):
    """A daemon thread that does ``work``.

    If a signal handler raises an error inside ``join``, Python 3.11 and 3.12 take the thread for one that has ended,
    and ``is_alive`` and the next ``join`` say so. ``wait`` tells the truth.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._has_ended = False
        self._running = threading.Lock()
        self._entered = threading.Event()

    def start(self) -> None:
        """Start the thread. Raises ``RuntimeError`` if the system has none left."""
        try:
            self._running.acquire()
            super().start()
        except BaseException as error:
            # Python has given the thread up, or it runs, if a signal came after it had begun.
            if isinstance(error, RuntimeError) or not self._entered.wait(ENTER_S):
                self._has_ended = True
            raise

    def run(self) -> None:
        """Do the work."""
        self._entered.set()
        try:
            self._work()
        finally:
            self._has_ended = True
            self._running.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, at most ``seconds``; whether it does not run, also because it was never started."""
        if not self._has_ended and self._running.acquire(timeout=max(0.0, seconds)):
            self._running.release()
            return True
        return self._has_ended
