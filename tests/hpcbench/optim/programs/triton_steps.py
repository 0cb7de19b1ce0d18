"""LAMB's Triton kernels in Triton's interpreter against torch's operations: prints the largest differences.

Run with ``TRITON_INTERPRET=1``; argument: number types and the options of LAMB with each, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from hpcbench.optim import lamb_triton
from hpcbench.optim.lamb import LAMB

BLOCK, SUMMED = 32, 4
SHAPES = ((3, 5), (1,), (BLOCK,), (), (0, 4), (2 * BLOCK + 7,), (2 * SUMMED + 1, BLOCK))
"""With a layer of more blocks than are summed at a time."""


def weights(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]
    made[0] = made[0].t()  # not in the order of its indices
    made[1].zero_()
    return [nn.Parameter(each) for each in made]


def step(optimizer: LAMB, number: int, found_inf: float | None, *, kernels: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(number)
    for weight in optimizer.param_groups[0]["params"]:
        gradient = torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight.dtype)
        # Of a new place in memory in every second step; the second layer misses some.
        weight.grad = weight.grad.copy_(gradient) if weight.grad is not None and number % 2 else gradient
        if found_inf:
            weight.grad.fill_(float("inf"))
    optimizer.param_groups[0]["params"][2].grad = None if number == 1 else torch.ones(SHAPES[2], dtype=weight.dtype)
    with torch.no_grad(), patch.object(lamb_triton, "works", lambda bucket: kernels):
        parts = optimizer.buckets(torch.tensor(found_inf or 0.0))
        for bucket in parts:
            optimizer.divide(bucket, optimizer.divisor(bucket.group, parts))
        return [optimizer.update(bucket) for bucket in parts]


def main() -> None:
    print(json.dumps([compare(getattr(torch, dtype), options) for dtype, options in json.loads(sys.argv[1])]))


def compare(dtype: torch.dtype, options: dict[str, Any]) -> dict[str, Any]:
    """The largest difference over four steps, and whether all numbers are finite."""
    lamb_triton.BLOCK, lamb_triton.SUMMED = BLOCK, SUMMED  # an interpreter is slow
    ours, plain = LAMB(weights(dtype), **options), LAMB(weights(dtype), **options)
    worst = 0.0
    for number in range(4):
        found_inf = 1.0 if number == 2 else None
        ratios = [step(each, number, found_inf, kernels=each is ours) for each in (ours, plain)]
        if found_inf is None:
            worst = max(worst, *(differences(*pair) for pair in zip(*ratios, strict=True)))
        worst = max(worst, *(differences(*pair) for pair in zip(tensors(ours), tensors(plain), strict=True)))
    return {"worst": worst, "finite": all(bool(each.isfinite().all()) for each in tensors(ours))}


def tensors(optimizer: LAMB) -> list[Tensor]:
    """Weights and state."""
    parameters: list[Any] = optimizer.param_groups[0]["params"]
    states = [optimizer.state[parameter] for parameter in parameters]
    return [*parameters, *(value for state in states for value in state.values())]


def differences(one: Tensor, other: Tensor) -> float:
    """Largest difference of two tensors over the largest number in them."""
    one, other = one.detach(), other.detach()
    return float((one - other).abs().max() / other.abs().max().clamp(min=1.0)) if one.numel() else 0.0


if __name__ == "__main__":
    main()
