"""Signals that ask a staging to end turn into an error, so that it ends in order: told, tidied up, written down."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
REPEATED_S = 2.0
"""Launchers often send a signal twice; a second one after this long is from someone who does not want to wait."""


class Interrupted(Exception):  # noqa: N818 - an event, and no fault of input or code
    """A signal asked for the end. ``exit_code`` is 128 + its number."""

    speaks = True
    """Whether this process reports it; false where another rank does."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """While entered, by the main thread, the first signal to end raises ``Interrupted`` there; others are ignored.

    One that comes ``REPEATED_S`` seconds later ends the process at once.
    """
    first: list[float] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        first.append(time.monotonic())
        if len(first) == 1:
            raise Interrupted(number)
        if first[-1] - first[0] > REPEATED_S:
            os._exit(128 + number)

    before = {number: signal.signal(number, interrupt) for number in CAUGHT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
