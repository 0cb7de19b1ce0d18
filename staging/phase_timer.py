"""Where the time of a run goes: exclusive spans that add up to the wall time."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType


class PhaseTimer:
    """Seconds per named phase. Spans may nest, and an inner one pauses the outer one, so no second counts twice.

    The wall time starts at construction, or at ``start`` on the same ``clock``. For one thread.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, start: float | None = None) -> None:
        self._clock = clock
        self._start = clock() if start is None else start
        self._mark = self._start
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._handles: dict[str, _Phase] = {}
        self.entered: Callable[[str], object] | None = None

    def listen(self, entered: Callable[[str], object]) -> None:
        """Call ``entered`` with the name of each phase that begins or continues; with ``other`` if none is open."""
        self.entered = entered

    def span(self, name: str) -> _Phase:
        """A context manager that charges the time inside it to ``name``."""
        handle = self._handles.get(name)
        if handle is None:
            self._seconds.setdefault(name, 0.0)
            handle = self._handles[name] = _Phase(self, name)
        return handle

    def add(self, name: str, seconds: float) -> None:
        """Charge to ``name`` seconds of this run that were measured elsewhere; the open span gives them up."""
        self._settle()
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        if self._open:
            self._seconds[self._open[-1]] -= seconds

    def move(self, source: str, target: str, seconds: float) -> None:
        """Charge to ``target`` what was charged to ``source``, such as communication within a step."""
        self._seconds[source] = self._seconds.get(source, 0.0) - seconds
        self._seconds[target] = self._seconds.get(target, 0.0) + seconds

    def stop(self) -> None:
        """End the wall time; later calls change nothing."""
        end = self._settle()
        self._clock = lambda: end

    def totals(self) -> dict[str, float]:
        """Seconds by name, open spans up to now."""
        self._settle()
        return dict(self._seconds)

    def now(self) -> float:
        """The time on this timer's clock."""
        return self._clock()

    @property
    def changed_at(self) -> float:
        """When a span was last entered or left, on the same clock."""
        return self._mark

    def wall(self) -> float:
        """Seconds since the start, up to ``stop`` if that was called."""
        return self._clock() - self._start

    def other(self) -> float:
        """Seconds of the wall time that no span covers."""
        return self.summary()["other"]

    def summary(self) -> dict[str, float]:
        """Seconds by name with ``other`` and, last, ``wall``, which is exactly the sum of all before it."""
        now = self._settle()
        parts = dict(self._seconds)
        parts["other"] = now - self._start - sum(parts.values())
        return {**parts, "wall": sum(parts.values())}

    def _settle(self) -> float:
        """Charge the time since the last change to the open span, and return the time."""
        now = self._clock()
        if self._open:
            self._seconds[self._open[-1]] += now - self._mark
        self._mark = now
        return now


class _Phase:
    """Enters and leaves one name; holds no time itself, so one object serves all spans of a name."""

    __slots__ = ("_name", "_timer")

    def __init__(self, timer: PhaseTimer, name: str) -> None:
        self._timer = timer
        self._name = name

    def __enter__(self) -> None:
        timer = self._timer  # the lines of _settle, without the cost of a call
        now = timer._clock()
        running = timer._open
        if running:
            timer._seconds[running[-1]] += now - timer._mark
        timer._mark = now
        running.append(self._name)
        if timer.entered is not None:
            timer.entered(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timer = self._timer
        now = timer._clock()
        timer._seconds[timer._open.pop()] += now - timer._mark
        timer._mark = now
        if timer.entered is not None:
            timer.entered(timer._open[-1] if timer._open else "other")
