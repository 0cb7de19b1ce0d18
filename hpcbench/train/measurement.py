"""Defines a measurement: the kind of its observer, when a run has one, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpcbench.config.schema import RunConfig
from hpcbench.measure.step_times import StepTimes
from hpcbench.train.context import RunContext
from hpcbench.train.observers import StepObserver
from hpcbench.train.training_step import TrainingStep


@dataclass(frozen=True)
class ObserverInputs:
    """What is needed to make observers."""

    run: RunContext
    step: TrainingStep
    times: StepTimes
    resumed_step: int
    """The last step of the checkpoint that the run continues from, else 0."""


@dataclass(frozen=True)
class Measurement:
    """A kind of observer: when the configuration asks for it, and how it is made."""

    kind: type[StepObserver]
    wanted: Callable[[RunConfig], object]
    make: Callable[[ObserverInputs], StepObserver]
    only_first: bool = False
    """Whether only rank 0 has it."""
