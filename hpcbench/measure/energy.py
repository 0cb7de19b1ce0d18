"""Energy of a node between two moments, from the counters of its hardware; absent where there are none, never zero."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hpcbench.measure.energy_sources import (
    SUDDEN_W,
    Absent,
    Counter,
    CounterRestartError,
    Counters,
    find_energy_counters,
)

__all__ = ["Absent", "Counters", "Energy", "EnergyMeter", "find_energy_counters"]

READS_PER_WRAP = 3
"""A counter is read at least this many times in the shortest time in which it can go through its range."""
RISE = 3.0
"""The power of a part grows by at most this factor between two readings, except below ``SUDDEN_W``."""
SHORTEST_S = 1.0
"""Over less time the energy of a reading says nothing about the power: registers are updated in steps."""
STALL_S = 60.0
"""The counter of hardware that is switched on does not stand still for this long."""


@dataclass(frozen=True)
class Energy:
    """Joules since the start, of what ``covers`` names and of its parts by name, as far as these are known."""

    joules: float
    parts: dict[str, float]
    source: str
    covers: str


class EnergyMeter:
    """Adds up the energy of a node from ``start``, or from entering the context; one meter per node is enough.

    A thread reads the counters every ``interval_s``, or more often if one could wrap within a few such intervals. A
    count that falls has wrapped if the energy through the end of its range amounts to a power that the part can draw
    and that is near what it drew in this run; otherwise it was reset, and what it counted until then is lost. After a
    reset, a count that stands still, or one that was not read in time, the reading is absent from then on: part of the
    energy is not a figure. A counter that cannot be read at the moment makes only this reading absent.

    A reset within the last joules of a range is not detected: its error is no more than the part draws in an interval.
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
        """Start counting. A meter starts only once."""
        if isinstance(self._counters, Counters):
            now = self._clock()
            self._summed = [_Tally(counter, now) for counter in self._counters.summed]
            self._inside = [_Tally(counter, now) for counter in self._counters.inside]
            both = (*self._counters.summed, *self._counters.inside)
            self._interval_s = min([self._interval_s, *(counter.wrap_s / READS_PER_WRAP for counter in both)])
            self._thread.start()

    @property
    def interval_s(self) -> float:
        """Seconds between two readings."""
        return self._interval_s

    def stop(self) -> None:
        """Stop counting; ``read`` keeps returning its present value."""
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join()
            self.sample()

    def read(self) -> Energy | Absent:
        """Return the energy from the start to now, or to ``stop``."""
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
        """Read every counter once, as the thread does."""
        with self._lock:
            for tally in (*self._summed, *self._inside):
                tally.take(self._clock())

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()


class _Tally:
    """What one counter has counted since this object was created."""

    def __init__(self, counter: Counter, now: float) -> None:
        self.part = counter.part
        self.total_uj = 0
        self._counter = counter
        self._lost: str | None = None
        self._unread: str | None = None
        self._highest_w = 0.0
        self._last_uj = self._read() or 0
        self._lost = self._lost or self._unread
        self._read_at = self._moved_at = now

    @property
    def trouble(self) -> str | None:
        """Why the total is not known; ``None`` while it is."""
        return self._lost or self._unread

    @property
    def joules(self) -> float:
        return self.total_uj / 1e6

    def take(self, now: float) -> None:
        """Add the counter's advance since the last reading. A failed reading loses nothing."""
        value = self._read()
        if value is None:
            return
        step, gap_s = value - self._last_uj, now - self._read_at
        still_s = 0.0 if step else now - self._moved_at
        if self._counter.range_uj is not None:
            step = self._through_range(value, step, gap_s)
        elif step < 0:
            self._lost = f"the counter of {self.part} fell from {self._last_uj / 1e6:g} J to {value / 1e6:g} J"
        if still_s >= STALL_S and self._lost is None:
            self._lost = f"the counter of {self.part} stood still for {still_s:.0f} s"
        self.total_uj += step
        self._last_uj, self._read_at, self._moved_at = value, now, now - still_s

    def _through_range(self, value: int, step: int, gap_s: float) -> int:
        """Microjoules since the last reading of a count that may have wrapped; a reset makes the total unknown."""
        counter, fell = self._counter, step < 0
        used_uj = step + (counter.range_uj or 0) if fell else step
        power_w = used_uj / 1e6 / max(gap_s, SHORTEST_S)
        most_w = min(counter.most_w, max(RISE * self._highest_w, SUDDEN_W)) if fell else counter.most_w
        if gap_s >= counter.wrap_s:
            self._lost = f"{self.part} was not read for {gap_s:.0f} s, in which its counter may have wrapped unseen"
        elif used_uj < 0 or power_w > most_w:
            end = "was reset" if fell else "jumped"
            way = f"went from {self._last_uj / 1e6:g} J to {value / 1e6:g} J within {gap_s:.0f} s"
            as_wrap = f"as a wrap that is {power_w:,.0f} W" if fell else f"which is {power_w:,.0f} W"
            self._lost = f"the counter of {self.part} {end}: it {way}, {as_wrap}, and {most_w:,.0f} W is the most"
        elif not fell and gap_s >= SHORTEST_S:
            self._highest_w = max(self._highest_w, power_w)
        return used_uj

    def _read(self) -> int | None:
        """The counter's value; ``None`` if it cannot be read now or no longer counts."""
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
