"""The learning rate as a function of the step; imports no torch.

Two units, two published schedules. CosmoFlow counts epochs: the rate is constant within an epoch, epoch 0 trains at
``warmup_start_lr``, epoch ``warmup`` at the peak, and milestones count from the start. DeepCAM counts optimizer steps:
every step of the warm-up is one increment, the last of them reaches the peak, and milestones count from the end of the
warm-up. Both are computed in their intended form; ``reference_quirks`` repeats what the reference code does
(mlcommons/hpc; docs/schedules.md lists the differences).
"""

from __future__ import annotations

import math

from hpcbench.config.schema import ScheduleConfig


def learning_rate(schedule: ScheduleConfig, peak: float, step: int, steps_per_epoch: int) -> float:
    """Learning rate of optimizer step ``step`` (0-based, over the whole run), with ``steps_per_epoch`` of them."""
    if schedule.unit == "epoch":
        return _per_epoch(schedule, peak, step // steps_per_epoch)
    if schedule.reference_quirks:
        return _deepcam_reference(schedule, peak, step)
    return _per_step(schedule, peak, step)


def _per_epoch(schedule: ScheduleConfig, peak: float, epoch: int) -> float:
    start, warmup = schedule.warmup_start_lr, schedule.warmup
    if epoch < warmup:
        return start + epoch * (peak - start) / warmup
    if schedule.shape == "multistep":
        # The reference compares with "less than", so that a drop named for epoch m is seen in epoch m + 1.
        passed = epoch - 1 if schedule.reference_quirks else epoch
        return peak * _factor(schedule, passed)
    return _cosine(schedule, peak, epoch - warmup)


def _per_step(schedule: ScheduleConfig, peak: float, step: int) -> float:
    start, warmup = schedule.warmup_start_lr, schedule.warmup
    if step < warmup:
        return peak if step + 1 == warmup else start + (step + 1) * (peak - start) / warmup
    if schedule.shape == "multistep":
        return peak * _factor(schedule, step - warmup)
    return _cosine(schedule, peak, step - warmup)


def _deepcam_reference(schedule: ScheduleConfig, peak: float, step: int) -> float:
    """The scheduler is one call ahead of the optimizer and leaves the warm-up one call early, short of its peak."""
    start, warmup = schedule.warmup_start_lr, schedule.warmup
    # Its base rate: a warm-up factor of 1 goes from zero to the base rate, a larger one goes up from the base rate.
    base = (start if warmup else 0.0) or peak
    reached = start + (warmup - 1) * (peak - start) / warmup if warmup > 1 else base
    if step + 1 < warmup:
        return start + (step + 1) * (peak - start) / warmup
    if schedule.shape == "multistep":
        return reached * _factor(schedule, step - warmup)
    ahead = step + 1 - warmup
    # Its restart adds to the base rate.
    top = reached if ahead <= schedule.t_max else base
    return _cosine(schedule, top, ahead)


def _factor(schedule: ScheduleConfig, position: int) -> float:
    passed = [f for m, f in zip(schedule.milestones, schedule.factors, strict=True) if m <= position]
    return passed[-1] if passed else 1.0


def _cosine(schedule: ScheduleConfig, peak: float, position: int) -> float:
    """Half a cosine from the peak to ``eta_min`` in ``t_max``, then back, as torch's CosineAnnealingLR does."""
    if schedule.shape != "cosine":
        return peak
    share = (1 + math.cos(math.pi * position / schedule.t_max)) / 2
    return schedule.eta_min + (peak - schedule.eta_min) * share
