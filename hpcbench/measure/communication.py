"""Exposed communication of a rank: seconds its steps wait for messages, by kind; waiting for slower ranks is separate.

Every rank records when it arrives at each message, and when its step starts and stops waiting for it. No barrier is
added: the arrival times stay here until ``settle`` exchanges them among the ranks of each channel. A run, which reads
its losses only now and then, calls ``settle`` when it does. The time that a rank waits until the last of the others has
arrived is waiting for slower ranks; the rest is transfer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hpcbench.measure.phases import DeviceInterval, Phases, Settled
from hpcbench.parallel.exposed import Arrivals
from hpcbench.phase_names import MESSAGE_KINDS

MOST_MESSAGES = 2**16
"""Messages of a channel that are kept between two calls of ``settle``; beyond these, waiting is not separated.

``is_filling`` asks for the next call in time, unless one step has more than a quarter of this number.
"""

ALL = frozenset[int]()
"""Stands for all members of a channel."""


class Clock(Protocol):
    """Converts times of this rank to a scale that all ranks share; see ``SharedClock``."""

    def measure(self) -> None:
        """Measure the offsets again; collective."""
        ...

    def common(self, times: torch.Tensor) -> torch.Tensor:
        """Convert times of this rank to the scale that all ranks share."""
        ...


class Communication:
    """Records the messages of one rank: the ``Recorder`` that everything in ``parallel`` takes.

    While a step waits for a message, its phase is paused and ``communication`` runs, so the phases still add up to the
    wall time. ``settle`` moves the time spent waiting for slower ranks to ``waiting``. Nothing is recorded outside
    steps, such as in evaluations.
    """

    def __init__(self, phases: Phases, clock: Clock, most: int = MOST_MESSAGES) -> None:
        self.phases, self.clock, self.most = phases, clock, most
        self.transfer_s = dict.fromkeys(MESSAGE_KINDS, 0.0)
        """Exposed seconds by kind up to the last ``settle``, without waiting for slower ranks."""
        self.waiting_s = dict.fromkeys(MESSAGE_KINDS, 0.0)
        """Seconds of waiting for slower ranks at messages of each kind."""
        self.unsplit = 0
        """Messages beyond those that could be kept; all of their time counts as transfer."""
        self._channels: list[_Channel] = []
        phases.on_settled.append(self._read)

    def channel(self, kind: str, arrivals: Arrivals, *, on_host: bool = False) -> _Channel:
        """See ``Recorder``."""
        made = (_HostChannel if on_host or not self.phases.asynchronous else _DeviceChannel)(self, kind, arrivals)
        self._channels.append(made)
        return made

    def is_filling(self) -> bool:
        """Whether more than half of the room for messages is used; a run then settles after the next step."""
        return any(channel.count > self.most // 2 for channel in self._channels)

    def discard_warm_up(self) -> None:
        """Drop all messages so far, and count all the time that steps have taken as initialisation."""
        self.phases.charge_to_init()
        self.unsplit = 0
        for channel in self._channels:
            channel.reset()

    def settle(self) -> None:
        """Wait for the device, and separate waiting from transfer for all messages since the last call; collective.

        ``settle`` of the phases may already have waited for the device. The exchange counts as waiting, too, as it does
        at the losses: it takes long only if a rank comes late to it.
        """
        self.phases.settle()
        timer, meets = self.phases.timer, self.phases.in_step and any(channel.count for channel in self._channels)
        with timer.span("waiting") if meets else nullcontext():
            began = timer.changed_at
            self.clock.measure()
            channel_times = [(channel, *channel.settle()) for channel in self._channels]
        if meets:
            self.waiting_s["losses"] += timer.changed_at - began
        for channel, transfer, waiting in channel_times:
            self.transfer_s[channel.kind] += transfer
            self.waiting_s[channel.kind] += waiting
            timer.move("communication", "waiting", waiting)

    def _read(self, settled: Settled) -> None:
        for channel in self._channels:
            channel.read(settled)


class _Channel:
    """What was recorded about the messages of one kind among some ranks since the last ``settle``."""

    def __init__(self, recorder: Communication, kind: str, arrivals: Arrivals) -> None:
        self.recorder, self.kind, self.exchange = recorder, kind, arrivals
        self.phases = recorder.phases
        self.now: Callable[[], float] = recorder.phases.timer.now
        self.span = recorder.phases.timer.span("communication")
        self.patterns: dict[frozenset[int], int] = {ALL: 0}
        """The number of each set of members that a message goes to."""
        self.met = array("i")
        """The pattern of each message."""
        self.count = 0
        self.host_s = 0.0
        """Seconds that are transfer in any case."""
        self._clear()

    def _clear(self) -> None:
        self.arrived, self.begins, self.ends = array("d"), array("d"), array("d")
        self.messages = array("i")
        """The message of each interval from ``begins`` to ``ends``, or -1."""
        self.scales = array("d")
        """The seconds that each second of an interval counts for; empty where that is always one."""

    def message(self, members: Collection[int] | None = None) -> AbstractContextManager[None]:
        """See ``Channel``."""
        if not self.phases.in_step:
            return nullcontext()
        if self.count >= self.recorder.most:
            self.recorder.unsplit += 1
            return self._made(-1)
        pattern = ALL if members is None else frozenset(members)
        number = self.patterns.get(pattern) if members is None or pattern else -1
        if number is None:
            number = self.patterns[pattern] = len(self.patterns)
        self.met.append(number)
        self._arrive()
        self.count += 1
        return self._made(self.count - 1)

    def read(self, settled: Settled) -> None:
        """Read the times of the device's events; the device has reached all of them."""

    def settle(self) -> tuple[float, float]:
        """Return the seconds of transfer and of waiting since the last call; collective among the members."""
        transfer, waiting = self.host_s, 0.0
        if self.count:
            everyone = self.exchange(self._common(self.arrived)).numpy()
            latest = self._latest(everyone, np.array(self.met))
            if self.messages:
                length = np.array(self.ends) - np.array(self.begins)  # on this rank's clock, as its phases are
                scale = np.array(self.scales) if self.scales else 1.0
                first = self._common(self.begins).numpy()
                before = np.clip(latest[np.array(self.messages)] - first, 0.0, length)
                waiting = float((before * scale).sum())
                transfer += float((length * scale).sum()) - waiting
        self.reset()
        return transfer, waiting

    def reset(self) -> None:
        """Drop all messages recorded so far."""
        self.met, self.count, self.host_s = array("i"), 0, 0.0
        self._clear()

    def _common(self, times: array[float]) -> torch.Tensor:
        return self.recorder.clock.common(torch.from_numpy(np.array(times)))

    def _latest(self, everyone: NDArray[np.float64], met: NDArray[np.int32]) -> NDArray[np.float64]:
        """When the last of the ranks that take part in each message arrived."""
        latest = np.full(len(met) + 1, -np.inf)  # the last is for messages without a number, marked -1
        for pattern, number in self.patterns.items():
            chosen = np.flatnonzero(met == number)
            rows = everyone[sorted(pattern)] if pattern else everyone
            if len(chosen):
                latest[chosen] = rows[:, chosen].max(axis=0)
        return latest

    def _made(self, number: int) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _arrive(self) -> None:
        raise NotImplementedError


class _HostChannel(_Channel):
    """Messages that the host waits for."""

    def _made(self, number: int) -> _HostMessage:
        return _HostMessage(self, number)

    def _arrive(self) -> None:
        self.arrived.append(self.now())


class _HostMessage:
    """A context in which ``communication`` runs."""

    __slots__ = ("began", "channel", "number")

    def __init__(self, channel: _HostChannel, number: int) -> None:
        self.channel, self.number = channel, number

    def __enter__(self) -> None:
        self.channel.span.__enter__()
        self.began = self.channel.phases.timer.changed_at

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        channel = self.channel
        channel.span.__exit__(kind, error, trace)
        ended = channel.phases.timer.changed_at
        if self.number < 0:
            channel.host_s += ended - self.began
            return
        channel.messages.append(self.number)
        channel.begins.append(self.began)
        channel.ends.append(ended)


class _DeviceChannel(_Channel):
    """Messages that the streams of an accelerator wait for; the time the host takes to launch them is transfer."""

    def _clear(self) -> None:
        super()._clear()
        self.arrival_events: list[Any] = []
        self.intervals: list[tuple[int, DeviceInterval]] = []

    def _made(self, number: int) -> _DeviceMessage:
        return _DeviceMessage(self, number)

    def _arrive(self) -> None:
        self.arrival_events.append(self.phases.event())

    def read(self, settled: Settled) -> None:
        """See ``_Channel``."""
        self.arrived.extend(settled.time_of(event) for event in self.arrival_events)
        for number, interval in self.intervals:
            self.messages.append(number)
            self.begins.append(settled.time_of(interval.begin))
            self.ends.append(settled.time_of(interval.end))
            self.scales.append(settled.scale)
        self.arrival_events.clear()
        self.intervals.clear()


class _DeviceMessage:
    """Brackets a message that the current stream waits for."""

    __slots__ = ("began", "channel", "interval", "number")

    def __init__(self, channel: _DeviceChannel, number: int) -> None:
        self.channel, self.number = channel, number

    def __enter__(self) -> None:
        self.channel.span.__enter__()
        self.began = self.channel.phases.timer.changed_at
        self.interval = self.channel.phases.begin_message()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        channel = self.channel
        channel.phases.end_message(self.interval)
        channel.span.__exit__(kind, error, trace)
        channel.host_s += channel.phases.timer.changed_at - self.began
        channel.intervals.append((self.number, self.interval))
