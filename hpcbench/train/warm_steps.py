"""Measures what the steps after the warm-up take: reports each to ``StepTimes``."""

from __future__ import annotations

from hpcbench.measure.step_times import StepTimes
from hpcbench.train.measurement import Measurement
from hpcbench.train.observers import StepInfo, StepObserver


class WarmSteps(StepObserver):
    """Measures what the steps after the warm-up take."""

    def __init__(self, times: StepTimes) -> None:
        self.times = times

    def begin(self) -> None:
        """As in ``StepTimes``."""
        self.times.begin()

    def after_step(self, info: StepInfo) -> None:
        """Count the step."""
        self.times.step(info.step_samples)

    def end(self) -> None:
        """As in ``StepTimes``."""
        self.times.end()


MEASUREMENT = Measurement(WarmSteps, lambda _: True, lambda parts: WarmSteps(parts.times))
