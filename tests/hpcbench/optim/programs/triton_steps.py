"""The Triton kernels of LAMB and LARS in Triton's interpreter against torch's operations: prints what was found.

Run with ``TRITON_INTERPRET=1``; argument: optimizers, number types and options of each case, as JSON.
"""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from hpcbench.optim import lamb_triton, lars_triton, triton_plan
from hpcbench.optim.lamb import LAMB
from hpcbench.optim.lars import LARS

BLOCK, SUMMED = 32, 2
SHAPES = ((3, 5), (1,), (BLOCK,), (), (0, 4), (2 * BLOCK + 7,), (2 * SUMMED + 1, BLOCK))
"""With a layer of more blocks than are summed at a time."""


KINDS: dict[str, type[LAMB] | type[LARS]] = {"LAMB": LAMB, "LARS": LARS}
KERNELS = (
    (lamb_triton, "first_pass"), (lamb_triton, "second_pass"), (lars_triton, "norms"), (lars_triton, "update"),
    (triton_plan, "add_sums"),
)  # fmt: skip


class Counted:
    """A kernel whose launches are counted."""

    def __init__(self, kernel: Any, name: str, launches: Counter[str]) -> None:
        self.kernel, self.name, self.launches = kernel, name, launches

    def __getitem__(self, grid: Any) -> Any:
        self.launches[self.name] += 1
        return self.kernel[grid]


def counted_look(launches: Counter[str]) -> Callable[[triton_plan.Plan], None]:
    """``Plan.find_addresses``, counted: a captured graph has memory for one look."""
    original = triton_plan.Plan.find_addresses

    def find_addresses(plan: triton_plan.Plan) -> None:
        launches["find_addresses"] += 1
        original(plan)

    return find_addresses


def weights(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]
    made[0] = made[0].t()  # not in the order of its indices
    made[1].zero_()
    return [nn.Parameter(each) for each in made]


def step(optimizer: LAMB | LARS, number: int, found_inf: float | None, *, kernels: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(number)
    for weight in optimizer.param_groups[0]["params"]:
        gradient = torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight.dtype)
        # Of a new place in memory in every second step; the second layer misses some.
        weight.grad = weight.grad.copy_(gradient) if weight.grad is not None and number % 2 else gradient
        if found_inf:
            weight.grad.fill_(float("inf"))
    optimizer.param_groups[0]["params"][2].grad = None if number == 1 else torch.ones(SHAPES[2], dtype=weight.dtype)
    with torch.no_grad(), patch.object(triton_plan, "works", lambda bucket: kernels):
        optimizer._norm = None
        parts = optimizer.buckets(torch.tensor(found_inf or 0.0))
        for bucket in parts:
            optimizer.divide(bucket, optimizer.divisor(bucket.group, parts))
        return [optimizer.update(bucket) for bucket in parts]


def main() -> None:
    cases = json.loads(sys.argv[1])
    print(json.dumps([compare(KINDS[kind], getattr(torch, dtype), options) for kind, dtype, options in cases]))


def compare(kind: type[LAMB] | type[LARS], dtype: torch.dtype, options: dict[str, Any]) -> dict[str, Any]:
    """The largest difference over four steps and their launches; in float32, whether copies take the same next step."""
    triton_plan.BLOCK, triton_plan.SUMMED = BLOCK, SUMMED  # an interpreter is slow
    ours, plain = kind(weights(dtype), **options), kind(weights(dtype), **options)
    worst = 0.0
    launches: Counter[str] = Counter()
    with ExitStack() as stack:
        for module, name in KERNELS:
            stack.enter_context(patch.object(module, name, Counted(getattr(module, name), name, launches)))
        stack.enter_context(patch.object(triton_plan.Plan, "find_addresses", counted_look(launches)))
        for number in range(4):
            found_inf = 1.0 if number == 2 else None
            ratios = [step(each, number, found_inf, kernels=each is ours) for each in (ours, plain)]
            if found_inf is None:
                worst = max(worst, *(differences(*pair) for pair in zip(*ratios, strict=True)))
            worst = max(worst, *(differences(*pair) for pair in zip(tensors(ours), tensors(plain), strict=True)))
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))] if dtype == torch.float32 else []
    for each in (ours, *copies) if copies else ():
        step(each, 4, None, kernels=True)
    return {
        "worst": worst,
        "finite": all(bool(each.isfinite().all()) for each in tensors(ours)),
        "launches": launches,
        "copies": len(copies),
        "copied": all(torch.equal(*pair) for each in copies for pair in zip(tensors(each), tensors(ours), strict=True)),
    }


def tensors(optimizer: LAMB | LARS) -> list[Tensor]:
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
