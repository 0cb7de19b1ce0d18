"""LARS (You, Gitman and Ginsburg 2017, arXiv:1708.03888): momentum with a rate for each layer.

    local = trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)
    v = momentum * v + lr * local * (g + weight_decay * w)
    w = w - v

The rate is inside the momentum, as in the paper; Apex and pytorch-optimizer multiply by it outside, which is the same
while it stays constant. With ``clip_rate`` the rate of a layer is the smaller of ``local`` and ``lr`` (the LARC
variant) in place of their product. Where a norm is zero, and in groups with ``adapt`` false, the rate is ``lr``.
Nesterov's form steps by ``momentum * v + lr * local * (g + weight_decay * w)`` with the new v.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from hpcbench.optim.layerwise import Bucket, LayerwiseOptimizer, add_scaled


class LARS(LayerwiseOptimizer):
    """SGD with momentum and layer-wise rates. ``lr`` may be a tensor; ``trust_bounds`` bound ``local``.

    ``max_grad_norm`` above 0 clips the gradients by their global norm first. State: ``momentum_buffer``.
    """

    moments = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        trust_bounds: tuple[float, float] = (0.0, float("inf")),
        clip_rate: bool = False,
        eps: float = 0.0,
        max_grad_norm: float = 0.0,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient, "trust_bounds": trust_bounds, "clip_rate": clip_rate, "eps": eps,
            "max_grad_norm": max_grad_norm,
        })  # fmt: skip

    def update(self, group: dict[str, Any], bucket: Bucket) -> Tensor:
        """The formula at the top; where a gradient is infinite, momentum 1 and rate 0 leave everything as it was."""
        momentum, gradients, found_inf = group["momentum"], bucket.gradients, bucket.found_inf
        locals_, rates = self.rates(group, bucket)
        if found_inf is not None:
            fine = found_inf == 0
            gradients = [torch.where(fine, gradient, 0.0) for gradient in gradients]
            momentum, rates = torch.where(fine, momentum, 1.0), torch.where(fine, rates, 0.0)
        decayed = list(torch._foreach_add(gradients, bucket.here, alpha=group["weight_decay"]))
        velocities = bucket.state("momentum_buffer")
        torch._foreach_mul_(velocities, momentum)
        steps = velocities
        if group["nesterov"]:
            add_scaled(velocities, [tensor.clone() for tensor in decayed], rates)
            steps = list(torch._foreach_mul(velocities, momentum))
            add_scaled(steps, decayed, rates)
        else:
            add_scaled(velocities, decayed, rates)
        if found_inf is not None:
            steps = list(torch._foreach_mul(steps, fine.to(steps[0].dtype)))
        torch._foreach_sub_(bucket.here, steps)
        return locals_

    def rates(self, group: dict[str, Any], bucket: Bucket) -> tuple[Tensor, Tensor]:
        """The trust ratio ``local`` and the rate of each layer, both (parameters,)."""
        ones, lr = bucket.ones(), group["lr"]
        if not group["adapt"]:
            return ones, ones * lr
        weights, slopes = bucket.norms(bucket.here, bucket.gradients)
        known = (weights > 0) & (slopes > 0)
        ratios = weights * group["trust_coefficient"] / (slopes + group["weight_decay"] * weights + group["eps"])
        ratios = torch.where(known, ratios.clamp_(*group["trust_bounds"]), ones)
        rates = torch.minimum(ratios, ones * lr) if group["clip_rate"] else ratios * lr
        return ratios, torch.where(known, rates, ones * lr)
