"""The learning rate as a function of the step; imports no torch.

Two units, two published schedules. CosmoFlow counts epochs: the rate is constant within an epoch, epoch 0 trains at
``warmup_start_lr``, epoch ``warmup`` at the peak, and milestones count from the start. DeepCAM counts optimizer steps:
every step of the warm-up is one increment, the last of them reaches the peak, and milestones count from the end of the
warm-up. ``warmup_unit`` gives the warm-up the form of the other, or, with ``epoch_by_step``, a length in epochs and an
increment in every step, so that all batches warm up over as many samples. Both are computed in their intended form;
``reference_quirks`` repeats what the reference code does (mlcommons/hpc; docs/schedules.md lists the differences).
"""

from __future__ import annotations

import math

from hpcbench.config.schema import ScheduleConfig


def learning_rate(
    schedule: ScheduleConfig, peak: float, step: int, steps_per_epoch: int, epoch: int | None = None
) -> float:
    """Learning rate of optimizer step ``step`` (0-based, over the whole run), ``steps_per_epoch`` to an epoch.

    ``epoch`` (0-based) gives the step's epoch where epochs differ in length, as with reshuffled shards.
    """
    epoch = step // steps_per_epoch if epoch is None else epoch
    warmup, in_epochs = schedule.warmup, warmup_in_epochs(schedule)
    if schedule.unit == "step" and schedule.reference_quirks:
        return _deepcam_reference(schedule, peak, step)
    by_epoch = in_epochs and schedule.warmup_unit != "epoch_by_step"
    if epoch < warmup if in_epochs else step < warmup:
        # Epoch 0 trains at the start, while the first step is one increment above it.
        done, length = (epoch, warmup) if by_epoch else (step + 1, warmup_steps(schedule, steps_per_epoch))
        start = schedule.warmup_start_lr
        return peak if done >= length else start + done * (peak - start) / length
    if schedule.unit == "epoch":
        since = epoch - warmup_steps(schedule, steps_per_epoch) // steps_per_epoch
        # The reference compares with "less than", so that a drop given for epoch m takes effect in epoch m + 1.
        passed = epoch - 1 if schedule.reference_quirks else epoch
    else:
        passed = since = step - warmup_steps(schedule, steps_per_epoch)
    # With epochs of different lengths, the warm-up may end after the position that its length in steps implies.
    position = max(since, 0)
    return peak * _factor(schedule, passed) if schedule.shape == "multistep" else _descent(schedule, peak, position)


def warmup_in_epochs(schedule: ScheduleConfig) -> bool:
    """Whether the warm-up is counted in epochs."""
    return (schedule.warmup_unit or schedule.unit) != "step"


def warmup_steps(schedule: ScheduleConfig, steps_per_epoch: int) -> int:
    """Length of the warm-up in optimizer steps."""
    return schedule.warmup * (steps_per_epoch if warmup_in_epochs(schedule) else 1)


def _deepcam_reference(schedule: ScheduleConfig, peak: float, step: int) -> float:
    """The reference scheduler is one call ahead of the optimizer and ends the warm-up a call early, below its peak."""
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
    return _descent(schedule, top, ahead)


def _factor(schedule: ScheduleConfig, position: int) -> float:
    passed = [f for m, f in zip(schedule.milestones, schedule.factors, strict=True) if m <= position]
    return passed[-1] if passed else 1.0


def _descent(schedule: ScheduleConfig, peak: float, position: int) -> float:
    """From the peak to ``eta_min`` in ``t_max``: half a cosine, then back as in torch; or a polynomial that stays.

    Polynomial: eta_min + (peak - eta_min) (1 - position / t_max) ** power. The inverse square root never ends: eta_min
    + (peak - eta_min) (t_max / (t_max + position)) ** 0.5 (Zhai et al. 2022, arXiv:2106.04560); with the warm-up's
    length for t_max, it is that of Vaswani et al. 2017 (arXiv:1706.03762).
    """
    if schedule.shape == "cosine":
        share = (1 + math.cos(math.pi * position / schedule.t_max)) / 2
    elif schedule.shape == "polynomial":
        share = (1 - min(position / schedule.t_max, 1.0)) ** schedule.power
    elif schedule.shape == "inverse_sqrt":
        share = math.sqrt(schedule.t_max / (schedule.t_max + position))
    else:
        return peak
    return schedule.eta_min + (peak - schedule.eta_min) * share
