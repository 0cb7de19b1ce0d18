"""Two rules of one line that a model must beat to be worth having.

Both start from the nearest result: from another site and no later round, for the same application, and of those the
nearest in accelerators and batch. The first scales all but staging by memory bandwidth and number of accelerators. The
second leaves the time of a step as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.prediction.entries import ModelEntry


@dataclass(frozen=True)
class Guess:
    """What a rule says. Times are in seconds."""

    time_s: float
    epoch_s: float
    """With its evaluation."""
    epochs: float
    data_staging_s: float
    step_s: float


def nearest(entry: ModelEntry, others: Sequence[ModelEntry]) -> ModelEntry:
    """The result that the rules start from."""
    known = [
        other
        for other in others
        if other.tuned and other.application == entry.application and other.round <= entry.round
    ]
    return min(known, key=lambda other: distance(entry, other))


def distance(entry: ModelEntry, other: ModelEntry) -> float:
    """How far apart two results are in accelerators and batch."""
    sizes = abs(math.log(other.accelerators / entry.accelerators))
    return sizes + abs(math.log(other.global_batch / entry.global_batch))


def scaled_result(entry: ModelEntry, others: Sequence[ModelEntry]) -> Guess:
    """The nearest result, its part without staging scaled by memory bandwidth."""
    other = nearest(entry, others)
    assert entry.platform is not None
    assert other.platform is not None
    faster = entry.platform.memory_bytes_per_s / other.platform.memory_bytes_per_s
    more = faster * entry.accelerators / other.accelerators
    staging = staging_part(other)
    share = entry.local_batch / other.local_batch
    return Guess(
        staging + (other.time_s - staging) / more, other.epoch_and_evaluation_s / more, other.mean_epochs,
        other.data_staging_s, other.step_s / faster * share,
    )  # fmt: skip


def same_step(entry: ModelEntry, others: Sequence[ModelEntry]) -> Guess:
    """The nearest result at this size, with the time of its step as it was."""
    other = nearest(entry, others)
    samples = other.accelerators / entry.accelerators
    epoch = entry.steps * other.step_s + other.evaluation_s * samples
    staging = staging_part(other)
    return Guess(
        staging + other.mean_epochs * epoch + other.extras_s,
        epoch,
        other.mean_epochs,
        other.data_staging_s,
        other.step_s,
    )


def staging_part(entry: ModelEntry) -> float:
    """The part of a result that is not training."""
    return entry.data_staging_s if entry.stages_first else max(entry.first_epoch_s - entry.epoch_s, 0.0)
