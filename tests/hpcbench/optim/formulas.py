"""LARS and LAMB of one step, written out tensor by tensor from their papers, in the type of the input."""

from __future__ import annotations

import torch
from torch import Tensor

State = dict[str, Tensor]


def lars(
    w: Tensor, g: Tensor, state: State, *, lr: float, momentum: float = 0.9, weight_decay: float = 0.0,
    trust_coefficient: float = 0.001, eps: float = 0.0, clip_rate: bool = False, nesterov: bool = False,
    bounds: tuple[float, float] = (0.0, float("inf")),
) -> Tensor:  # fmt: skip
    """The weights after a step; ``state`` keeps the momentum."""
    rate = lr
    if w.norm() > 0 and g.norm() > 0:
        local = trust_coefficient * float(w.norm()) / (float(g.norm()) + weight_decay * float(w.norm()) + eps)
        local = min(max(local, bounds[0]), bounds[1])
        rate = min(lr, local) if clip_rate else lr * local
    step = rate * (g + weight_decay * w)
    state["v"] = momentum * state.get("v", torch.zeros_like(w)) + step
    return w - (momentum * state["v"] + step if nesterov else state["v"])


def lamb(
    w: Tensor, g: Tensor, state: State, t: int, *, lr: float, betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6, weight_decay: float = 0.0, bias_correction: bool = True, grad_averaging: bool = True,
    bounds: tuple[float, float] = (0.0, float("inf")), adapt: bool = True,
) -> Tensor:  # fmt: skip
    """The weights after step ``t`` (from 1 on) with the gradient ``g``, already clipped."""
    beta1, beta2 = betas
    state["m"] = beta1 * state.get("m", torch.zeros_like(w)) + (1 - beta1 if grad_averaging else 1) * g
    state["v"] = beta2 * state.get("v", torch.zeros_like(w)) + (1 - beta2) * g * g
    first, second = state["m"], state["v"]
    if bias_correction:
        first, second = first / (1 - beta1**t), second / (1 - beta2**t)
    u = first / (second.sqrt() + eps) + weight_decay * w
    ratio = 1.0
    if adapt and w.norm() > 0 and u.norm() > 0:
        ratio = min(max(float(w.norm() / u.norm()), bounds[0]), bounds[1])
    return w - lr * ratio * u
