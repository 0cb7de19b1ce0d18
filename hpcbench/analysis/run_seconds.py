"""The time to train of a run as parts that add up to it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from hpcbench.mlperf.run_record import RunRecord

FEWEST_INTERVALS = 3
"""From so many epochs on, the first is compared with the median of the others."""


@dataclass(frozen=True)
class RunSeconds:
    """Seconds of a run, or their means over runs. They add up to the time to train."""

    training: float
    """Of all epochs, as if the first had taken as long as the median of the others."""
    evaluation: float
    """Of all evaluations, likewise."""
    first: float
    """What the first epoch and the first evaluation took beyond the median of the others; negative where less."""
    staging: float
    """Within the clock; 0 where the log has no staging."""
    rest: float
    """Of the run without all these."""

    @property
    def total(self) -> float:
        """Time to train."""
        return self.training + self.evaluation + self.first + self.staging + self.rest

    @property
    def epochs_total(self) -> float:
        """Training and evaluation, but for what the first took beyond the others."""
        return self.training + self.evaluation


def seconds_of(record: RunRecord) -> RunSeconds | None:
    """The parts of a run; ``None`` where its log does not tell them."""
    if record.time_to_train_s is None or not record.epochs_s:
        return None
    training, evaluation = sum(record.epochs_s), sum(record.evaluations_s)
    first_epoch, first_evaluation = beyond(record.epochs_s), beyond(record.evaluations_s)
    staging = record.staging_s or 0.0
    if training - first_epoch <= 0:
        return None
    return RunSeconds(
        training=training - first_epoch, evaluation=evaluation - first_evaluation, first=first_epoch + first_evaluation,
        staging=staging, rest=record.time_to_train_s - training - evaluation - staging,
    )  # fmt: skip


def beyond(seconds: Sequence[float]) -> float:
    """What the first interval took beyond the median of the others; 0 where there are too few to tell."""
    return seconds[0] - statistics.median(seconds[1:]) if len(seconds) >= FEWEST_INTERVALS else 0.0


def first_over_others(seconds: Sequence[float]) -> float | None:
    """The first interval over the median of the others; ``None`` where there are too few to tell."""
    if len(seconds) < FEWEST_INTERVALS or (middle := statistics.median(seconds[1:])) <= 0:
        return None
    return seconds[0] / middle


def mean_seconds(runs: Sequence[RunSeconds]) -> RunSeconds:
    """The mean of each part over runs, so that the means add up to the mean time."""
    return RunSeconds(*(statistics.fmean(getattr(run, part.name) for run in runs) for part in fields(RunSeconds)))
