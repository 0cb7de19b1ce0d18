"""The peak learning rate at the run's batch; imports no torch.

Linear: Goyal et al. 2017 (arXiv:1706.02677). Square root: Krizhevsky 2014 (arXiv:1404.5997), also in LAMB (You
et al. 2020). CosmoFlow's reference has both: linear from 0.001 at batch 64, or the root from 0.0025 at 32.
"""

from __future__ import annotations

import math

from hpcbench.config.schema import OptimConfig, RunConfig


def peak_learning_rate(optim: OptimConfig, global_batch_size: int) -> float:
    """``optim.lr`` times B / base, its square root, or 1, with B = ``global_batch_size`` of the run."""
    if optim.scaling == "none":
        return optim.lr
    assert optim.base_batch_size is not None, "validate_run refuses a scaling rule without its base"
    ratio = global_batch_size / optim.base_batch_size
    return optim.lr * (ratio if optim.scaling == "linear" else math.sqrt(ratio))


def scale_to_batch(config: RunConfig, global_batch_size: int) -> None:
    """Set ``optim.lr`` to the peak at the run's batch, and ``optim.base_batch_size`` to that batch.

    So the rule still holds, and a second call changes nothing. The absolute rates of the schedule stay as they are,
    since a warm-up starts at a rate for small batches, but are lowered to the peak if they are above it.
    """
    optim, schedule = config.optim, config.schedule
    if optim.scaling == "none":
        return
    optim.lr, optim.base_batch_size = peak_learning_rate(optim, global_batch_size), global_batch_size
    schedule.warmup_start_lr = min(schedule.warmup_start_lr, optim.lr)
    schedule.eta_min = min(schedule.eta_min, optim.lr)


def rate_note(optim: OptimConfig, global_batch_size: int) -> str:
    """The peak in words: ``peak rate 0.008 (linear scaling)``; says if it is for another batch than the run's."""
    if optim.scaling != "none":
        return f"peak rate {optim.lr:g} ({optim.scaling} scaling)"
    if optim.base_batch_size not in (None, global_batch_size):
        return f"peak rate {optim.lr:g} (for batch {optim.base_batch_size}; see optim.scaling)"
    return f"peak rate {optim.lr:g}"
