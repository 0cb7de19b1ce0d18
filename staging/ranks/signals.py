"""Turns signals that ask to end into an error: at once, or at the next check where state must stay whole."""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from staging.errors import Aborted, InputError

CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

REPEATED_S = 5.0
"""Launchers and schedulers repeat signals; one that comes this long after the first is from someone who won't wait."""

WRITE_S = 25.0
"""How long after SIGTERM or SIGINT there is time to write: schedulers kill 30 s after the signal."""

WARNING_VARIABLE = "HPCBENCH_WARN_S"
WARNING_S = 120.0
"""How long before its time limit a job gets SIGUSR1, unless ``HPCBENCH_WARN_S`` says otherwise."""

AGAIN_S = 0.02
"""How long after it was dropped a signal's error is raised again."""

MARGIN_S = 5.0
"""How much of that time is kept for leaving, or a tenth of it if that is less."""


class Interrupted(Aborted):
    """A signal asked for the end. ``exit_code`` is 128 + its number. ``everywhere``: see ``Aborted``."""

    def __init__(self, number: int, *, everywhere: bool = False) -> None:
        name = signal.Signals(number).name
        super().__init__(f"signal {name}", 128 + number, everywhere=everywhere, cause="signal", signal=name)


def what_ended(error: BaseException | None) -> BaseException | None:
    """The ``Interrupted`` during whose handling ``error`` was raised; ``error`` itself if there is none.

    A signal raises between any two lines, also between those that close a file and forget it, or that take and release
    a lock; what then breaks on the way out is not why the work ends.
    """
    exception, seen = error, set[int]()
    while exception is not None and id(exception) not in seen:
        if isinstance(exception, Interrupted):
            return exception
        seen.add(id(exception))
        exception = exception.__context__
    return error


def ignore_at_exit(numbers: Iterable[signal.Signals]) -> None:
    """Have signals ignored while Python ends: it hands those that it handles back to the system, where they kill."""
    _ignored_at_exit.update(numbers)


_ignored_at_exit: set[signal.Signals] = set()


@atexit.register  # registered now, so it runs after everything registered later: what hangs in there can still be ended
def _ignore() -> None:
    for number in _ignored_at_exit:
        signal.signal(number, signal.SIG_IGN)


class Handlers(ABC):
    """Within this context, the signals ``numbers`` go to ``_remember``; afterwards to their previous handlers.

    If one of them ends the process (``_ends_process``), the handlers stay, so that a repeated signal does not kill it.
    """

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
        if self._ends_process(error):
            ignore_at_exit(self.numbers)
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @abstractmethod
    def _ends_process(self, error: BaseException | None) -> bool: ...

    @abstractmethod
    def _remember(self, number: int, frame: FrameType | None) -> None: ...


class Interrupts(Handlers):
    """Within this context, in the main thread, the first signal raises ``Interrupted`` there (exit code 128+n).

    Inside ``with interrupts.deferred()`` it waits for the next ``check()``, where stopping is safe. Signals within
    ``REPEATED_S`` of the first count as the same one; a later one ends the process at once, with 128 + the first. That
    holds to the end of a process that an ``Interrupted`` ends, also if something else broke while the ``Interrupted``
    passed through. Python drops an error that meets a destructor: an ``Interrupted`` that is dropped is raised again.
    ``warning_s``: seconds from SIGUSR1 to the time limit.
    """

    numbers = CAUGHT

    def __init__(self, warning_s: float = WARNING_S) -> None:
        super().__init__()
        self.received: signal.Signals | None = None
        self.received_at = math.inf
        """When it arrived, on the clock of ``time.monotonic``."""
        self._warning_s = warning_s
        self._deferring = False
        self._told_before = sys.unraisablehook
        self._sent_again: threading.Timer | None = None

    def __enter__(self) -> Self:
        if sys.unraisablehook != self._raise_again:
            self._told_before, sys.unraisablehook = sys.unraisablehook, self._raise_again
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.unraisablehook = self._told_before
        if self._sent_again is not None:
            self._sent_again.cancel()  # what was to be ended has ended; the signal would go to its previous handler
        cause = what_ended(error)
        super().__exit__(kind, cause, trace)
        if cause is not None and cause is not error:
            raise cause from None

    def _ends_process(self, error: BaseException | None) -> bool:
        return isinstance(error, Interrupted)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is None:
            self.received, self.received_at = signal.Signals(number), now
            if not self._deferring:
                raise self.abort()
        elif now - self.received_at > REPEATED_S:
            os._exit(128 + self.received)

    def _raise_again(self, dropped: sys.UnraisableHookArgs) -> None:
        """Take what Python dropped: a signal is sent again, and anything else is told as before.

        An error that a destructor meets while an ``Interrupted`` is handled is something else.
        """
        if isinstance(dropped.exc_value, Interrupted):
            self._sent_again = threading.Timer(AGAIN_S, self._send_again)
            self._sent_again.start()
        else:
            self._told_before(dropped)

    def _send_again(self) -> None:
        number, self.received = self.received, None
        if number is not None:
            os.kill(os.getpid(), number)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within this context, signals wait for ``check()``."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    def too_late(self, *, others: bool) -> None:
        """From now on SIGUSR1, which asks to stop before a time limit, changes nothing; other signals end the run.

        Earlier signals are forgotten. If there are ``others``, this holds until the process ends, since they may
        wait for the first rank to close.
        """
        if others:
            self._before.pop(signal.SIGUSR1, None)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self.received, self.received_at = None, math.inf

    def check(self) -> None:
        """Raise ``Interrupted`` (exit code 128+n) if a signal came."""
        if self.received is not None:
            raise self.abort()

    def abort(self) -> Interrupted:
        """The error that ends this process because of the signal."""
        assert self.received is not None
        return Interrupted(self.received)

    def seconds_left(self, now: float | None = None) -> float:
        """Seconds from ``now`` (of ``time.monotonic``) in which files may still be written; ``inf`` without a signal.

        Zero or less: nothing more may be begun.
        """
        if self.received is None:
            return math.inf
        warned = self.received == signal.SIGUSR1
        allowed = self._warning_s - min(MARGIN_S, self._warning_s / 10) if warned else WRITE_S
        return self.received_at + allowed - (time.monotonic() if now is None else now)


def warning_time(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds from SIGUSR1 to the time limit of a job, from ``HPCBENCH_WARN_S``. Raises ``InputError``."""
    text = environ.get(WARNING_VARIABLE, "")
    try:
        seconds = float(text or WARNING_S)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InputError(
            f"{WARNING_VARIABLE} ({text}) must be a number of seconds, at least 0: how long before its time limit the "
            "job gets SIGUSR1; correct it or unset it"
        )
    return seconds
