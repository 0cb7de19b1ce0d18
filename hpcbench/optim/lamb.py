"""LAMB (You et al. 2020, arXiv:1904.00962): Adam's update, scaled for each layer to the norm of its weights.

    g = g / max(1, |g of all layers| / max_grad_norm)                   where max_grad_norm is above 0
    m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * g^2
    u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
    w = w - lr * (|w| / |u|) * u

With ``max_grad_norm`` 1 this is the variant with pre-normalisation that DeepCAM's closed division fixes (NVIDIA Apex,
``FusedLAMB``); the paper has no pre-normalisation. Unlike timm and pytorch-optimizer, nothing is added to a norm before
dividing by it. The paper's bounds are on |w|; ``trust_bounds`` are on the ratio. Where a norm is zero, the ratio is 1.

The implementations are in ``lamb_numba`` (CPUs) or ``lamb_host`` (CPUs, where Numba is missing or cannot be imported,
or a model is small), ``lamb_triton`` (accelerators) and ``lamb_foreach`` (the rest).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from hpcbench.optim import lamb_foreach, lamb_host
from hpcbench.optim.bucket import Bucket
from hpcbench.optim.layerwise import LayerwiseOptimizer, has_kernels
from hpcbench.optim.tensors import UNBOUNDED, local
from staging.print_line import print_line

COMPILED_FROM = 1 << 22
"""Elements of a model from which CPU loops are compiled, which takes some seconds, once per process."""


class LAMB(LayerwiseOptimizer):
    """Adam with layer-wise rates. ``lr`` may be a tensor; ``trust_bounds`` bound the trust ratio.

    ``grad_averaging`` false leaves out the factor ``1 - beta1``. ``always_adapt`` false leaves the ratio of a group
    without weight decay at 1, as Apex does. State: ``step``, ``exp_avg`` (m, times ``1 - beta1`` without
    ``grad_averaging``), ``exp_avg_sq`` (v), as torch's Adam.
    """

    kernel_divides = True
    moments = ("exp_avg", "exp_avg_sq")
    counts = ("step",)
    method = ("always_adapt", "max_grad_norm")

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

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> str:
        """``NVLAMB`` without ``always_adapt``."""
        return "NVLAMB" if options["always_adapt"] is False else cls.__name__

    def new_state(self, parameter: Tensor) -> dict[str, Any]:
        """Moments and the step count, which is on the parameter's device."""
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return {"step": step, **super().new_state(parameter)}

    def update(self, bucket: Bucket) -> Tensor:
        """Apply the formula at the top."""
        steps = [state["step"] for state in bucket.states]
        torch._foreach_add_(steps, 1)
        if bucket.found_inf is not None:
            torch._foreach_sub_(steps, [(bucket.found_inf > 0).to(steps[0].dtype)] * len(steps))
        if bucket.on_host and self.steps_by_chunks(bucket.parameters[0]):
            from hpcbench.optim import lamb_numba

            return lamb_numba.step(bucket, self.room, adapts(bucket.group))
        squares, apply = self.directions(bucket)
        ratios = self.ratios(bucket, squares)
        factors = ratios * -bucket.group["lr"]
        if bucket.found_inf is not None:
            factors = torch.where(bucket.found_inf > 0, 0.0, factors)
        apply(factors)
        return ratios

    def directions(self, bucket: Bucket) -> tuple[Tensor, Callable[[Tensor], None]]:
        """New moments; squared norms of w and u, (2, parameters), and what adds u times each layer's factor to w."""
        if bucket.on_host:
            room, host = self.room(bucket, bucket.elements), self.host_kernels(bucket.parameters[0])
            return host.directions(bucket, room), lambda factors: host.apply(bucket, room, factors)
        if has_kernels(bucket):
            from hpcbench.optim import lamb_triton

            return lamb_triton.directions(bucket), lambda factors: lamb_triton.apply(bucket, factors)
        updates, squares = lamb_foreach.directions(bucket)
        return squares, lambda factors: lamb_foreach.apply(bucket, updates, factors)

    def host_kernels(self, parameter: Tensor) -> ModuleType:
        """The module that does the work on a CPU, for parameters such as this one."""
        if self.elements >= COMPILED_FROM:
            loops = compiled_loops()
            if loops is not None and loops.works(parameter.dtype):
                return loops
        return lamb_host

    def is_compiled(self, parameter: Tensor) -> bool:
        """Whether compiled loops do the work for parameters such as this one."""
        return parameter.device.type == "cpu" and self.host_kernels(parameter) is not lamb_host

    def steps_by_chunks(self, parameter: Tensor) -> bool:
        """Whether compiled loops take whole steps for parameters such as this one, whose norms need no other rank."""
        return not isinstance(parameter, DTensor) and self.is_compiled(parameter)

    def compile_loops(self) -> bool:
        """As in the base class. Weights that get no gradient count, too: nobody knows them yet."""
        weights = [(group, weight) for group in self.param_groups for weight in group["params"] if weight.requires_grad]
        before, self.elements = self.elements, sum(local(weight).numel() for _, weight in weights)
        used = {
            (weight.dtype, self.steps_by_chunks(weight), bool(group["max_grad_norm"])): group
            for group, weight in weights
            if self.is_compiled(weight)
        }
        self.elements = before
        for (dtype, whole, _), group in used.items():
            from hpcbench.optim import lamb_numba

            lamb_numba.compile_loops(dtype, group, whole=whole)
        return bool(used)

    def bucket_size(self, parameter: Tensor) -> int:
        """As in the base class, and without a bound for compiled loops too, which need only the memory of a chunk."""
        return UNBOUNDED if self.steps_by_chunks(parameter) else super().bucket_size(parameter)

    def squared_gradients(self, bucket: Bucket) -> Tensor:
        """As in the base class, in a compiled loop where there is one."""
        if not bucket.on_host or self.host_kernels(bucket.parameters[0]) is lamb_host:
            return super().squared_gradients(bucket)
        from hpcbench.optim import lamb_numba

        return lamb_numba.squared_norm(bucket)

    def ratios(self, bucket: Bucket, squares: Tensor) -> Tensor:
        """The trust ratio of each layer, (parameters,)."""
        group, ones = bucket.group, bucket.ones()
        if not adapts(group):
            return ones
        weights, norms = bucket.norms(squares)
        return torch.where((weights > 0) & (norms > 0), (weights / norms).clamp_(*group["trust_bounds"]), ones)


@cache
def compiled_loops() -> ModuleType | None:
    """``lamb_numba``; ``None`` where Numba is missing, or, with a warning, where it refuses to be imported."""
    if find_spec("numba") is None:
        return None
    try:
        from hpcbench.optim import lamb_numba
    except ImportError as error:
        reason = " ".join(str(error).split())
        print_line(f"warning: LAMB runs without compiled loops, since Numba cannot be imported ({reason}); mend Numba")
        return None
    return lamb_numba


def adapts(group: dict[str, Any]) -> bool:
    """Whether the layers of a group have trust ratios."""
    return bool(group["adapt"] and (group["weight_decay"] or group["always_adapt"]))
