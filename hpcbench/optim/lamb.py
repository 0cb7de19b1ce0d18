"""LAMB (You et al. 2020, arXiv:1904.00962): Adam's update, scaled for each layer to the norm of its weights.

    g = g / max(1, |g of all layers| / max_grad_norm)                   where max_grad_norm is above 0
    m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * g^2
    u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
    w = w - lr * (|w| / |u|) * u

With ``max_grad_norm`` 1 it is the variant with pre-normalisation that DeepCAM's closed division fixes (NVIDIA Apex,
``FusedLAMB``); the paper has none. Unlike timm and pytorch-optimizer, nothing is added to a norm before dividing by it.
The paper's bounds are on |w|; ``trust_bounds`` are on the ratio. Where a norm is zero the ratio is 1.

The moments and u come from torch's fused kernel of Adam: of a tensor that holds ``weight_decay * w``, a step with rate
-1 makes u. So the bytes that move are those of AdamW, and about as many again for w, u and their norms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from hpcbench.optim.layerwise import Bucket, LayerwiseOptimizer, add_scaled

LATE = 1e9
"""A step at which no bias is left to be corrected: beta^LATE is 0."""


class LAMB(LayerwiseOptimizer):
    """Adam with layer-wise rates. ``lr`` may be a tensor; ``trust_bounds`` bound the trust ratio.

    ``grad_averaging`` false leaves out the factor ``1 - beta1``. ``always_adapt`` false leaves the ratio of a group
    without weight decay at 1, as Apex does. State: ``step``, ``exp_avg`` (m), ``exp_avg_sq`` (v), as torch's Adam.
    """

    kernel_divides = True
    moments = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        grad_averaging: bool = True,
        always_adapt: bool = True,
        trust_bounds: tuple[float, float] = (0.0, float("inf")),
        max_grad_norm: float = 0.0,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "bias_correction": bias_correction,
            "grad_averaging": grad_averaging, "always_adapt": always_adapt, "trust_bounds": trust_bounds,
            "max_grad_norm": max_grad_norm,
        })  # fmt: skip

    def new_state(self, parameter: Tensor) -> dict[str, Any]:
        """Moments and the count of steps, which lies where the parameter does."""
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return {"step": step, **super().new_state(parameter)}

    def update(self, group: dict[str, Any], bucket: Bucket) -> Tensor:
        """The formula at the top."""
        updates = self.directions(group, bucket)
        ratios = self.ratios(group, bucket, updates)
        factors = ratios * -group["lr"]
        if bucket.found_inf is not None:
            factors = torch.where(bucket.found_inf > 0, 0.0, factors)
        add_scaled(bucket.here, updates, factors)
        return ratios

    def directions(self, group: dict[str, Any], bucket: Bucket) -> list[Tensor]:
        """New moments, and u of each layer in memory of its own."""
        updates = self.scaled(bucket.here, group["weight_decay"])
        steps = [state["step"] for state in bucket.states]
        torch._foreach_add_(steps, 1)
        if bucket.found_inf is not None:
            torch._foreach_sub_(steps, [bucket.found_inf] * len(steps))
        if not group["bias_correction"]:
            steps = [torch.full_like(steps[0], LATE)] * len(steps)
        beta1, beta2 = group["betas"]
        # The kernel averages; the sum is the average over 1 - beta1.
        rate = 1.0 if group["grad_averaging"] else 1 / (1 - beta1)
        torch._fused_adam_(
            updates, bucket.gradients, bucket.state("exp_avg"), bucket.state("exp_avg_sq"), [], steps, lr=-rate,
            beta1=beta1, beta2=beta2, weight_decay=0.0, eps=group["eps"], amsgrad=False, maximize=False,
            grad_scale=bucket.divisor, found_inf=bucket.found_inf,
        )  # fmt: skip
        return updates

    def ratios(self, group: dict[str, Any], bucket: Bucket, updates: list[Tensor]) -> Tensor:
        """The trust ratio of each layer, (parameters,)."""
        ones = bucket.ones()
        if not group["adapt"] or not (group["weight_decay"] or group["always_adapt"]):
            return ones
        weights, norms = bucket.norms(bucket.here, updates)
        return torch.where((weights > 0) & (norms > 0), (weights / norms).clamp_(*group["trust_bounds"]), ones)
