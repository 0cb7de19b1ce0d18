"""Signals end a run between two steps, with a reason; a second one ends it at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from hpcbench.exits import Aborted

CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Interrupts:
    """While entered, remembers the first signal. ``check()`` raises ``Aborted`` for it, where stopping is safe."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        for number in CAUGHT:
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _remember(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = signal.Signals(number)
        if again:
            raise self.abort()

    def check(self) -> None:
        """Raise ``Aborted`` (exit code 128+n) if a signal came."""
        if self.received is not None:
            raise self.abort()

    def abort(self) -> Aborted:
        """The error that ends the run because of the signal."""
        assert self.received is not None
        return Aborted(f"signal {self.received.name}", 128 + self.received.value)
