"""Clipping by the global norm: all gradients divided by max(1, norm / max_norm), inside or outside an optimizer.

Pascanu, Mikolov and Bengio 2013. Nothing is added to the norm, unlike ``torch.nn.utils.clip_grad_norm_``, so that a
gradient of exactly the largest norm stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isinf

import torch
from torch import Tensor

from hpcbench.optim.tensors import buckets, global_norm, gradient, local, squared_norms
from staging.errors import InputError


def clip_divisor(norm: Tensor, max_norm: float) -> Tensor:
    """The divisor for gradients of this global norm, at least 1; a scalar on the device."""
    return (norm / max_norm).clamp_(min=1.0)


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Divide the gradients in place so that their global norm is at most ``max_norm``; returns the norm before.

    An infinite ``max_norm`` leaves them as they are. Raises ``InputError`` if ``max_norm`` is NaN or not above 0.
    """
    if not max_norm > 0:
        raise InputError(f"clipping: the largest norm ({max_norm}) must be above 0")
    with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [gradient("clipping", parameter) for parameter in with_gradient]
    norm = global_norm(
        (with_gradient[part.start], squared_norms(gradients[part]).sum()) for part in buckets(with_gradient)
    )
    if isinf(max_norm):  # a norm that overflows, divided by it, is NaN
        return norm
    for parameter in with_gradient:
        assert parameter.grad is not None
        local(parameter.grad).div_(clip_divisor(norm, max_norm).to(parameter.device))
    return norm
