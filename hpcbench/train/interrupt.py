"""Signals end a run with a reason: at once, or between two steps where its state must stay whole."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from hpcbench.exits import Aborted

CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Handlers(ABC):
    """While entered, the signals ``numbers`` go to ``_remember``; afterwards to whom they went before."""

    numbers: tuple[signal.Signals, ...]

    def __init__(self) -> None:
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in self.numbers:
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @abstractmethod
    def _remember(self, number: int, frame: FrameType | None) -> None: ...


class Interrupts(Handlers):
    """While entered, a signal raises ``Aborted`` (exit code 128+n).

    Inside ``with interrupts.deferred()`` it waits for the next ``check()``, where stopping is safe; a second signal
    does not wait.
    """

    numbers = CAUGHT

    def __init__(self) -> None:
        super().__init__()
        self.received: signal.Signals | None = None
        self._deferring = False

    def _remember(self, number: int, frame: FrameType | None) -> None:
        at_once = self.received is not None or not self._deferring
        self.received = signal.Signals(number)
        if at_once:
            raise self.abort()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals inside wait for ``check()``."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    def too_late(self, *, others: bool) -> None:
        """From now on SIGUSR1, which asks to stop before a time limit, changes nothing; other signals end the run.

        Where there are ``others`` this holds until the process ends, since they may wait for the first rank to close.
        """
        if others:
            self._before.pop(signal.SIGUSR1, None)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def check(self) -> None:
        """Raise ``Aborted`` (exit code 128+n) if a signal came."""
        if self.received is not None:
            raise self.abort()

    def abort(self) -> Aborted:
        """The error that ends the run because of the signal."""
        assert self.received is not None
        return Aborted(f"signal {self.received.name}", 128 + self.received.value)
