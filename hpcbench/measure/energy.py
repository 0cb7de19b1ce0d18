"""Energy of a node between two moments, from the counters of its hardware; absent where there are none, never zero."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hpcbench.measure.energy_sources import Absent, Counter, CounterRestartError, Counters, find_energy_counters

__all__ = ["Absent", "Counters", "Energy", "EnergyMeter", "find_energy_counters"]

BOUND_W = 1000
"""More than one counter that wraps, of a processor package or its memory, ever draws."""
STALL_S = 60.0
"""A counter of hardware that is switched on does not stand still for so long."""


@dataclass(frozen=True)
class Energy:
    """Joules since the start of what ``covers`` says, and of its parts by name, as far as they are known."""

    joules: float
    parts: dict[str, float]
    source: str
    covers: str


class EnergyMeter:
    """Adds up the energy of a node from entering on, or ``start``; one per node is enough.

    A thread reads the counters every ``interval_s``, so that none wraps twice unseen. A wrap is known by the counter's
    range. A counter that falls back otherwise, stands still or was not read in time makes the reading absent from then
    on; one that only can't be read now makes this one absent.
    """

    def __init__(
        self,
        counters: Counters | Absent,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counters = counters
        self._interval_s = interval_s
        self._clock = clock
        self._summed: list[_Tally] = []
        self._inside: list[_Tally] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)

    def __enter__(self) -> EnergyMeter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Count from now on. A meter starts once."""
        if isinstance(self._counters, Counters):
            now = self._clock()
            self._summed = [_Tally(counter, now) for counter in self._counters.summed]
            self._inside = [_Tally(counter, now) for counter in self._counters.inside]
            self._thread.start()

    def stop(self) -> None:
        """Count no further; ``read`` stays at what it is now."""
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join()
            self.sample()

    def read(self) -> Energy | Absent:
        """The energy from the start to now, or to ``stop``."""
        if isinstance(self._counters, Absent):
            return self._counters
        if not self._stop.is_set():
            self.sample()
        with self._lock:
            for tally in self._summed:
                if tally.trouble is not None:
                    return Absent(tally.trouble)
            if not self._summed:
                return Absent("the meter was not started")
            parts = {tally.part: tally.joules for tally in (self._inside or self._summed) if tally.trouble is None}
            joules = sum(tally.total_uj for tally in self._summed) / 1e6
        return Energy(joules, parts, self._counters.source, self._counters.covers)

    def sample(self) -> None:
        """Read every counter once. What the thread does."""
        with self._lock:
            for tally in (*self._summed, *self._inside):
                tally.take(self._clock())

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()


class _Tally:
    """What one counter counted since this was made."""

    def __init__(self, counter: Counter, now: float) -> None:
        self.part = counter.part
        self.total_uj = 0
        self._counter = counter
        self._lost: str | None = None
        self._unread: str | None = None
        self._last_uj = self._read() or 0
        self._lost = self._lost or self._unread
        self._read_at = self._moved_at = now

    @property
    def trouble(self) -> str | None:
        """Why the total is not known; empty while it is."""
        return self._lost or self._unread

    @property
    def joules(self) -> float:
        return self.total_uj / 1e6

    def take(self, now: float) -> None:
        """Add what the counter went on since the last time. Nothing is lost by a time when it can't be read."""
        value = self._read()
        if value is None:
            return
        step, range_uj = value - self._last_uj, self._counter.range_uj
        gap_s, still_s = now - self._read_at, 0.0 if step else now - self._moved_at
        if step < 0 and range_uj is not None:
            step += range_uj
        if step < 0:
            self._lost = f"the counter of {self.part} fell from {self._last_uj / 1e6:g} J to {value / 1e6:g} J"
        elif range_uj is not None and gap_s * BOUND_W * 1e6 >= range_uj:
            self._lost = f"{self.part} was not read for {gap_s:.0f} s, in which its counter may have wrapped unseen"
        elif still_s >= STALL_S:
            self._lost = f"the counter of {self.part} stood still for {still_s:.0f} s"
        self.total_uj += step
        self._last_uj, self._read_at, self._moved_at = value, now, now - still_s

    def _read(self) -> int | None:
        """The counter, or nothing where it can't be read now or no longer counts."""
        if self._lost is not None:
            return None
        try:
            value = self._counter.read_uj()
        except CounterRestartError as error:
            self._lost = f"{self.part}: {error}"
            return None
        except (OSError, ValueError) as error:
            self._unread = f"{self.part}: {error}"
            return None
        self._unread = None
        return value
