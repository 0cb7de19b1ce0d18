"""The signals that end the command of a study, or the process that makes packed runs in a job."""

from __future__ import annotations

import signal
from types import FrameType

from hpcbench.exits import Aborted
from staging.ranks.signals import Handlers


class Signals(Handlers):
    """While entered, signals are counted, and raise ``Aborted`` (128+n) at the next ``check``."""

    def __init__(self, *more: signal.Signals) -> None:
        """Catch SIGINT and SIGTERM, and ``more``."""
        super().__init__()
        self.numbers = (signal.SIGINT, signal.SIGTERM, *more)
        self.count = 0
        self.first: signal.Signals | None = None

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.first = self.first or signal.Signals(number)

    def check(self) -> None:
        """Raise ``Aborted`` if a signal came."""
        if self.first is not None:
            raise Aborted(f"signal {self.first.name}; the same command goes on from here", 128 + self.first.value)
