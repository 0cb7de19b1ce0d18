"""Phases of the training step on any device: the host's clock, divided by device events where work is asynchronous."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from staging.spans import Spans

ON_DEVICE = ("compute", "communication", "optimizer")
"""Phases that an accelerator works on while the host goes ahead."""


class Phases:
    """Spans of a run, with the sum of the wall time.

    On an accelerator the host only queues work: its own spans of a step are short, and the wait for the device falls
    to whoever looks first. So the phases of a step are bracketed by device events too, and ``settle`` (called where
    the host waits for the device anyway) divides the time of waiting as the device divided its work.
    """

    def __init__(self, spans: Spans, device: torch.device) -> None:
        self.spans = spans
        self.device = device
        self.asynchronous = device.type != "cpu"
        self._events: list[tuple[str, Any, Any]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the time inside to ``name``."""
        timed = self.asynchronous and name in ON_DEVICE
        with self.spans.span(name):
            begin = self._event() if timed else None
            yield
            if timed:
                self._events.append((name, begin, self._event()))

    def settle(self) -> None:
        """Wait for the device, and divide the host's seconds since the last call as the device's events say."""
        if not self._events:
            return
        before = self.spans.totals()
        with self.spans.span("compute"):
            self._events[-1][2].synchronize()
        waited = self.spans.totals()["compute"] - before.get("compute", 0.0)
        device = dict.fromkeys(ON_DEVICE, 0.0)
        for name, begin, end in self._events:
            device[name] += begin.elapsed_time(end) / 1e3
        self._events.clear()
        total = sum(device.values())
        for name in ON_DEVICE[1:]:
            share = device[name] / total if total else 0.0
            self.spans.move("compute", name, waited * share)

    def _event(self) -> Any:
        event = torch.Event(device=self.device, enable_timing=True)
        event.record()
        return event
