"""Counts the signals that end the command of a study, or the process that makes packed runs in a job."""

from __future__ import annotations

import math
import signal
import time
from types import FrameType

from hpcbench.exits import Aborted
from staging.ranks.signals import REPEATED_S, Handlers


class SignalCounter(Handlers):
    """Counts signals while entered, and raises ``Aborted`` (128+n) at the next ``check``.

    Signals within ``REPEATED_S`` of the first count as the same one, since launchers and schedulers repeat them.
    """

    def __init__(self, *more: signal.Signals) -> None:
        """Catch SIGINT and SIGTERM, and ``more``."""
        super().__init__()
        self.numbers = (signal.SIGINT, signal.SIGTERM, *more)
        self.count = 0
        self.first: signal.Signals | None = None
        self._first_at = math.inf

    def _remember(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self._first_at, self.count = signal.Signals(number), now, 1
        elif now - self._first_at > REPEATED_S:
            self.count += 1

    def _ends_process(self, error: BaseException | None) -> bool:
        return isinstance(error, Aborted)

    def check(self) -> None:
        """Raise ``Aborted`` if a signal has come."""
        if self.first is not None:
            raise Aborted(f"signal {self.first.name}; the same command continues from here", 128 + self.first.value)
