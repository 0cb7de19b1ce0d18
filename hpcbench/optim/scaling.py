"""The peak learning rate at the run's batch; imports no torch.

Linear: Goyal et al. 2017 (arXiv:1706.02677). Square root: Krizhevsky 2014 (arXiv:1404.5997), and LAMB's authors (You et
al. 2020). CosmoFlow's reference offers both, linear from 0.001 at batch 64 and sqrt from 0.0025 at 32.
"""

from __future__ import annotations

import math

from hpcbench.config.schema import OptimConfig


def peak_learning_rate(optim: OptimConfig, global_batch_size: int) -> float:
    """``optim.lr`` times B / base, its square root, or 1, with B = ``global_batch_size`` of the run.

    Absolute rates of the schedule (``warmup_start_lr``, ``eta_min``) are not scaled: a warm-up starts where small
    batches train.
    """
    if optim.scaling == "none":
        return optim.lr
    assert optim.base_batch_size is not None, "validate_run refuses a scaling rule without its base"
    ratio = global_batch_size / optim.base_batch_size
    return optim.lr * (ratio if optim.scaling == "linear" else math.sqrt(ratio))
