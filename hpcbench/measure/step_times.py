"""What the steps of a warm rank take: wall time, its phases, processor time and energy."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

from hpcbench.measure.communication import Communication
from hpcbench.measure.descendants import descendants
from hpcbench.measure.phases import Phases
from hpcbench.phase_names import MESSAGE_KINDS, STEP_PHASES


def processor_s() -> float:
    """Seconds of processor time that this process and its readers have used, over all threads."""
    used = 0.0
    for pid in (os.getpid(), *descendants()):
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            used += times.user + times.system
    return used


@dataclass(frozen=True)
class Mark:
    """The readings of a rank's clocks at one moment."""

    steps: int
    wall_s: float
    phases_s: Mapping[str, float]
    messages_s: Mapping[str, float]
    cpu_s: float
    joules: float | None


@dataclass
class StepTimes:
    """Sums over the optimizer steps after ``warmup_steps``, between ``begin`` and ``end``, which may be called again.

    Evaluations and checkpoints must not lie between the two. ``joules`` returns the energy so far, or ``None``. With
    ``communication`` the end of the warm-up is collective, and the seconds of communication are recorded by kind.
    """

    phases: Phases
    warmup_steps: int
    communication: Communication | None = None
    joules: Callable[[], float | None] = lambda: None
    clock: Callable[[], float] = time.perf_counter
    processor: Callable[[], float] = processor_s
    steps: int = 0
    samples: int = 0
    """Samples of all ranks together."""
    wall_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEP_PHASES, 0.0))
    messages_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MESSAGE_KINDS, 0.0))
    """The parts of ``communication`` in ``phases_s``, by kind of message."""
    cpu_s: float = 0.0
    energy_j: float | None = 0.0
    """Unset once a reading was unset."""
    _since: Mark | None = None

    def begin(self) -> None:
        """Steps follow."""
        if self.warmup_steps <= 0:
            self._since = self._start()

    def step(self, samples: int) -> None:
        """A step of ``samples`` samples is done."""
        if self._since is not None:
            self.steps += 1
            self.samples += samples
            return
        self.warmup_steps -= 1
        if self.warmup_steps == 0:
            if self.communication is None:
                self.phases.settle()
            else:
                self.communication.settle()
            self._since = self._start()

    def end(self) -> None:
        """No step follows for a while. Before this call, wait for the device and settle ``communication``."""
        since, self._since = self._since, None
        if since is None or since.steps == self.steps:
            return
        wall_s, phases_s, messages_s = self.clock(), self.phases.timer.totals(), self._messages()
        now = Mark(self.steps, wall_s, phases_s, messages_s, self.processor(), self.joules())
        self.wall_s += now.wall_s - since.wall_s
        for name in STEP_PHASES:
            self.phases_s[name] += now.phases_s.get(name, 0.0) - since.phases_s.get(name, 0.0)
        for kind in MESSAGE_KINDS:
            self.messages_s[kind] += now.messages_s.get(kind, 0.0) - since.messages_s.get(kind, 0.0)
        self.cpu_s += max(0.0, now.cpu_s - since.cpu_s)
        known = self.energy_j is not None and now.joules is not None and since.joules is not None
        self.energy_j = self.energy_j + now.joules - since.joules if known else None  # type: ignore[operator]

    def _start(self) -> Mark:
        cpu_s, joules = self.processor(), self.joules()  # first: they take a while, which belongs to no step
        return Mark(self.steps, self.clock(), self.phases.timer.totals(), self._messages(), cpu_s, joules)

    def _messages(self) -> dict[str, float]:
        return {} if self.communication is None else dict(self.communication.transfer_s)
