"""Defines a measurement: the kind of its observer, when a run has one, what it needs, and how it is made."""

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


def needs_nothing(config: RunConfig, parts: int) -> None:
    """The check of a measurement that every run can have."""


def slows_no_steps(config: RunConfig) -> int:
    """For a measurement whose steps take as long as others."""
    return 0


@dataclass(frozen=True)
class Measurement:
    """A kind of observer: when the configuration asks for it, what it needs, and how it is made."""

    kind: type[StepObserver]
    wanted: Callable[[RunConfig], object]
    make: Callable[[ObserverInputs], StepObserver]
    only_first: bool = False
    """Whether only rank 0 has it."""
    check: Callable[[RunConfig, int], None] = needs_nothing
    """Raises ``InputError`` if the run cannot have it. The number counts the parts of a step over all ranks."""
    slowed_steps: Callable[[RunConfig], int] = slows_no_steps
    """How many steps after those of ``measure.warmup_steps`` it slows down; rates leave them out."""
