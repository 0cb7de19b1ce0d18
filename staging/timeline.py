"""What lands on a rank while a staging runs: counted, shown, and passed on to be made durable."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from staging.landing.sinks import Landed
from staging.ledger.durable_batch import DurableBatch
from staging.progress import Progress

TIMELINE_POINTS = 400
"""The most points that a report has: moments, and bytes landed until then."""


@dataclass
class Landings:
    """Counts what lands on this rank, for the progress and the timeline, and passes it on to be made durable."""

    batch: DurableBatch
    progress: Progress
    start: float = field(default_factory=time.perf_counter)
    bytes: int = 0
    timeline: list[tuple[float, int]] = field(default_factory=list)
    _interval_s: float = 0.05
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, landed: list[Landed]) -> None:
        """Take files that are complete under their names."""
        with self._lock:
            self.bytes += sum(file.size for file in landed)
            now = time.perf_counter() - self.start
            self.progress.advance(
                len({file.source for file in landed}), rate=f"{self.bytes / 1e6 / max(now, 1e-3):.0f} MB/s"
            )
            if not self.timeline or now - self.timeline[-1][0] >= self._interval_s:
                self.timeline.append((now, self.bytes))
            if len(self.timeline) > TIMELINE_POINTS:
                self.timeline, self._interval_s = self.timeline[::2], self._interval_s * 2
        self.batch.add(landed)
