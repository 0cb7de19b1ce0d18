"""Phases of the training step on any device: the host's clock, divided by device events where work is asynchronous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from hpcbench.phase_names import BY_NAME, ON_DEVICE, STEP_PHASES
from staging.phase_timer import PhaseTimer


@dataclass(slots=True)
class DeviceInterval:
    """Time that a device spends between two events within a phase, on a message that it waits for."""

    outer: str
    begin: Any
    end: Any = None


@dataclass(frozen=True)
class Settled:
    """Result of ``settle``: where device time lies on the host's clock, and how much of it the host waited for."""

    event: Any
    now: float
    scale: float
    """Seconds charged to phases per second of the device; less than 1 where the host was slower than the device."""

    def time_of(self, event: Any) -> float:
        """Return when an earlier event happened, on the host's clock."""
        return self.now - float(event.elapsed_time(self.event)) / 1e3


class Phases:
    """Phases of a run, which add up to the wall time.

    On an accelerator the host only queues work: its own spans of a step are short, and the phase that first reads a
    result bears the whole wait for the device. So the phases of a step are bracketed by device events, too, and
    ``settle`` (called where the host waits for the device anyway) divides the waiting time as the device divided its
    work. The time that the host meanwhile waited for other hosts is divided with it.
    """

    def __init__(self, timer: PhaseTimer, device: torch.device, *, in_step: bool = True) -> None:
        """``in_step``: whether steps begin at once; if not, what happens outside ``steps`` is not part of any step."""
        self.timer = timer
        self.device = device
        self.asynchronous = device.type != "cpu"
        self.in_step = in_step
        """Whether what happens now is part of training: in a step, or between two."""
        self.on_settled: list[Callable[[Settled], None]] = []
        """Callbacks that read the times of their own events at each ``settle`` that waited for the device."""
        self._open: list[str] = []
        self._unsettled = False
        """Whether there were events since the last ``settle``."""
        self._waited: dict[str, float] = defaultdict(float)
        """Seconds in ``host_wait`` (waiting) and ``device_wait`` (compute) since the last ``settle``."""
        self._events: list[tuple[str, Any, Any]] = []
        self._inner: list[DeviceInterval] = []

    @contextmanager
    def steps(self) -> Iterator[None]:
        """Enclose the steps of a training, and what lies between them."""
        before, self.in_step = self.in_step, True
        try:
            yield
        finally:
            self.in_step = before

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the time inside to ``name``."""
        timed = self.asynchronous and name in ON_DEVICE
        before, self.in_step = self.in_step, name not in BY_NAME or BY_NAME[name].in_step
        self._open.append(name)
        try:
            with self.timer.span(name):
                begin = self.event() if timed else None
                yield
                if timed:
                    self._events.append((name, begin, self.event()))
        finally:
            self._open.pop()
            self.in_step = before

    def begin_message(self) -> DeviceInterval:
        """The device waits for a message from now on; autograd's thread may call this, and its stream then counts."""
        return DeviceInterval(self._open[-1] if self._open else "", self.event())

    def end_message(self, interval: DeviceInterval) -> None:
        """The device continues: the time since ``begin_message`` is communication, not part of the phase around it."""
        interval.end = self.event()
        self._inner.append(interval)

    def host_wait(self) -> AbstractContextManager[None]:
        """The host waits for other ranks' hosts, while its device works or waits for their devices.

        The time counts as waiting; ``settle`` takes off the time for which the device was busy.
        """
        return self._wait("waiting")

    def device_wait(self) -> AbstractContextManager[None]:
        """The host waits for steps that its device still works on, before it queues more.

        ``settle`` divides the time as it divides its own wait.
        """
        return self._wait("compute")

    @contextmanager
    def _wait(self, phase: str) -> Iterator[None]:
        """Charge a wait within a step to a phase until ``settle`` divides it."""
        if not self.in_step:
            yield
            return
        began = self.timer.now()
        with self.timer.span(phase):
            yield
        self._waited[phase] += self.timer.now() - began

    def charge_to_init(self) -> None:
        """Charge steps so far to initialisation, such as passes on made-up samples before the first step."""
        self._unsettled = False
        self._waited.clear()
        self._events.clear()
        self._inner.clear()
        taken = self.timer.totals()
        for name in STEP_PHASES:
            self.timer.move(name, "init", taken.get(name, 0.0))

    def settle(self) -> None:
        """Wait for the device, and divide the host's waiting since the last call as the device divided its work."""
        host_waited, device_waited = self._waited["waiting"], self._waited["compute"]
        self._waited.clear()
        if not self._unsettled:
            return
        before = self.timer.totals()
        last = self.event()
        with self.timer.span("compute"):
            last.synchronize()
        after = self.timer.totals()
        waited = device_waited + after["compute"] - before.get("compute", 0.0)
        device = dict.fromkeys(ON_DEVICE, 0.0)
        for name, begin, end in self._events:
            device[name] += begin.elapsed_time(end) / 1e3
        for interval in self._inner:
            seconds = interval.begin.elapsed_time(interval.end) / 1e3
            device["communication"] += seconds
            if interval.outer in device:
                device[interval.outer] -= seconds
        self._events.clear()
        self._inner.clear()
        total = sum(device.values())
        busy = min(host_waited, max(0.0, total - waited))
        self.timer.move("waiting", "compute", busy)
        waited += busy
        scale = waited / total if total > 0 else 0.0
        for name in ON_DEVICE:
            if name != "compute":
                self.timer.move("compute", name, device[name] * scale)
        self._unsettled = False
        settled = Settled(last, self.timer.now(), scale)
        for read in self.on_settled:
            read(settled)

    def event(self) -> Any:
        """Record and return an event on the current stream of the device."""
        event = torch.Event(device=self.device, enable_timing=True)
        event.record()
        self._unsettled = True
        return event
