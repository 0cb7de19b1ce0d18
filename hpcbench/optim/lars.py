"""LARS (You, Gitman and Ginsburg 2017, arXiv:1708.03888): momentum with a rate for each layer.

    local = trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)
    v = momentum * v + lr * local * (g + weight_decay * w)
    w = w - v

The rate is inside the momentum, as in the paper; Apex and pytorch-optimizer multiply by it outside, which is the same
while it stays constant. With ``clip_rate`` the rate of a layer is the smaller of ``local`` and ``lr`` (the LARC
variant) in place of their product. Where a norm is zero, and in groups with ``adapt`` false, the rate is ``lr``.
Nesterov's form steps by ``momentum * v + lr * local * (g + weight_decay * w)`` with the new v.

On an accelerator where Triton works, the implementation is in ``lars_triton``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.layerwise import LayerwiseOptimizer, has_kernels
from hpcbench.optim.tensors import add_scaled


class LARS(LayerwiseOptimizer):
    """SGD with momentum and layer-wise rates. ``lr`` may be a tensor; ``trust_bounds`` bound ``local``.

    ``max_grad_norm`` above 0 clips the gradients by their global norm first. State: ``momentum_buffer``.
    """

    moments = ("momentum_buffer",)
    method = ("clip_rate",)

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

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> str:
        """``LARC`` with ``clip_rate``."""
        return "LARC" if options["clip_rate"] is True else cls.__name__

    def update(self, bucket: Bucket) -> Tensor:
        """Apply the formula at the top."""
        if has_kernels(bucket):
            from hpcbench.optim import lars_triton

            lars_triton.find(bucket)
            ratios, rates = self.rates(bucket, lars_triton.squared_norms)
            lars_triton.move(bucket, rates)
            return ratios
        ratios, rates = self.rates(bucket, lambda bucket: bucket.squared_norms(bucket.weights, bucket.gradients))
        if bucket.on_host:
            self.move_on_host(bucket, rates.tolist())
        else:
            self.move(bucket, rates)
        return ratios

    def move_on_host(self, bucket: Bucket, rates: list[float]) -> None:
        """New momentum and weights, one piece at a time, so that what a piece needs is read from memory once."""
        momentum, decay = bucket.group["momentum"], bucket.group["weight_decay"]
        cuts = bucket.cut_weights(), bucket.cut(bucket.gradients), *bucket.cut_moments()
        parts = zip(bucket.pieces(), *cuts, strict=True)
        for piece, weights, gradients, velocities in parts:
            decayed = torch._foreach_add(gradients, weights, alpha=decay)
            torch._foreach_mul_(velocities, momentum)
            for (layer, _, _), velocity, gradient in zip(piece, velocities, decayed, strict=True):
                velocity.add_(gradient, alpha=rates[layer])
            if not bucket.group["nesterov"]:
                torch._foreach_sub_(weights, velocities)
                continue
            torch._foreach_sub_(weights, velocities, alpha=momentum)
            for (layer, _, _), weight, gradient in zip(piece, weights, decayed, strict=True):
                weight.sub_(gradient, alpha=rates[layer])

    def move(self, bucket: Bucket, rates: Tensor) -> None:
        """The same on any device; where a gradient is infinite, momentum 1 and rate 0 leave everything as it was."""
        group, gradients, found_inf = bucket.group, bucket.gradients, bucket.found_inf
        momentum = group["momentum"]
        if found_inf is not None:
            fine = found_inf == 0
            gradients = [torch.where(fine, gradient, 0.0) for gradient in gradients]
            momentum = torch.where(fine, torch.full_like(rates[0], momentum), 1.0)
            rates = torch.where(fine, rates, 0.0)
        decayed = list(torch._foreach_add(gradients, bucket.weights, alpha=group["weight_decay"]))
        velocities = bucket.moments[0]
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
        torch._foreach_sub_(bucket.weights, steps)

    def rates(self, bucket: Bucket, squared_norms: Callable[[Bucket], Tensor]) -> tuple[Tensor, Tensor]:
        """The trust ratio and the rate of each layer, both (parameters,): the rate is ``lr`` times the trust ratio.

        With ``clip_rate`` the trust ratio is ``local`` / ``lr``, at most 1.
        ``squared_norms`` returns those of weights and gradients on this rank, (2, parameters).
        """
        group, ones = bucket.group, bucket.ones()
        lr = group["lr"]
        if not group["adapt"]:
            return ones, ones * lr
        weights, slopes = bucket.norms(squared_norms(bucket))
        known = (weights > 0) & (slopes > 0)
        ratios = weights * group["trust_coefficient"] / (slopes + group["weight_decay"] * weights + group["eps"])
        ratios = torch.where(known, ratios.clamp_(*group["trust_bounds"]), ones)
        rates = torch.minimum(ratios, ones * lr) if group["clip_rate"] else ratios * lr
        if group["clip_rate"]:
            ratios = (ratios / lr).clamp_(max=1)
        return torch.where(known, ratios, ones), torch.where(known, rates, ones * lr)
