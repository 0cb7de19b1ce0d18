"""The time to train of a run as parts that add up to it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from hpcbench.mlperf.published import PublishedRun
from hpcbench.mlperf.run_record import RunRecord

FEWEST_INTERVALS = 3
"""From this many epochs on, the first is compared with the median of the others."""


@dataclass(frozen=True)
class Intervals:
    """Seconds of the epochs of a run, or of its evaluations."""

    total: float
    first: float | None = None
    middle: float | None = None
    """The median of those after the first; ``None`` with ``first`` where there are too few to compare."""

    @property
    def beyond(self) -> float:
        """What the first took beyond the median of the others; 0 where there are too few to tell."""
        return 0.0 if self.first is None or self.middle is None else self.first - self.middle

    @property
    def first_over_others(self) -> float | None:
        """The first over the median of the others; ``None`` where there are too few to tell."""
        return None if self.first is None or not self.middle else self.first / self.middle


@dataclass(frozen=True)
class RunSeconds:
    """Seconds of a run, or their means over runs. They add up to the time to train."""

    training: float
    """Seconds of all epochs, as if the first had taken as long as the median of the others."""
    evaluation: float
    """Seconds of all evaluations, likewise."""
    first: float
    """What the first epoch and the first evaluation took beyond the median of the others; negative where less."""
    staging: float
    """Within the clock; 0 where the log has no staging."""
    rest: float
    """The rest of the run, without all these."""

    @property
    def total(self) -> float:
        """Time to train."""
        return self.training + self.evaluation + self.first + self.staging + self.rest

    @property
    def epochs_total(self) -> float:
        """Training and evaluation, without what the first took beyond the others."""
        return self.training + self.evaluation


def epochs_of(record: RunRecord) -> Intervals | None:
    """The training of a run's epochs; ``None`` where its log does not give it."""
    if not isinstance(record, PublishedRun):
        return intervals(record.epochs_s)
    if record.training_s is None:
        return None
    return known_intervals(record.training_s, record.first_epoch_s, record.epoch_median_s, record.epochs)


def evaluations_of(record: RunRecord) -> Intervals | None:
    """The evaluations of a run; ``None`` where its log does not give them."""
    if not isinstance(record, PublishedRun):
        return intervals(record.evaluations_s)
    if record.evaluation_s is None:
        return None
    return known_intervals(record.evaluation_s, record.first_evaluation_s, record.evaluation_median_s, record.epochs)


def intervals(seconds: Sequence[float]) -> Intervals | None:
    """The intervals of a list; ``None`` for an empty one."""
    if not seconds:
        return None
    middle = statistics.median(seconds[1:] or seconds)
    return known_intervals(sum(seconds), seconds[0], middle, len(seconds))


def known_intervals(total: float, first: float | None, middle: float | None, count: float | None) -> Intervals:
    """``count`` intervals with this total, first, and median of the others."""
    return Intervals(total, first, middle) if (count or 0) >= FEWEST_INTERVALS else Intervals(total)


def lacks_epochs(record: RunRecord) -> bool:
    """Whether a shipped record has the time of a run but not that of its epochs (v0.7 DeepCAM)."""
    return isinstance(record, PublishedRun) and record.training_s is None and record.evaluation_s is not None


def seconds_of(record: RunRecord) -> RunSeconds | None:
    """The parts of a run; ``None`` where its log does not give them.

    Where a shipped record lacks the seconds of epochs, all but staging and evaluation counts as training.
    """
    time, staging = record.time_to_train_s, record.staging_s or 0.0
    if time is None:
        return None
    training, evaluation = epochs_of(record), evaluations_of(record) or Intervals(0.0)
    if lacks_epochs(record):
        return RunSeconds(time - staging - evaluation.total, evaluation.total, 0.0, staging, 0.0)
    if training is None or training.total - training.beyond <= 0:
        return None
    return RunSeconds(
        training=training.total - training.beyond, evaluation=evaluation.total - evaluation.beyond,
        first=training.beyond + evaluation.beyond, staging=staging,
        rest=time - training.total - evaluation.total - staging,
    )  # fmt: skip


def mean_seconds(runs: Sequence[RunSeconds]) -> RunSeconds:
    """The mean of each part over runs, so that the means add up to the mean time."""
    return RunSeconds(*(statistics.fmean(getattr(run, part.name) for run in runs) for part in fields(RunSeconds)))
