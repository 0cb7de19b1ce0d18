"""LARS on an accelerator in two passes over memory, each one kernel for all layers (Triton).

The first pass reads weight and gradient and leaves a sum of squares per block of both; the second reads them again with
the momentum, and writes momentum and weight: seven reads and writes of a tensor's size against SGD's five.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.triton_plan import part, plan_of, pointers


def find(bucket: Bucket) -> None:
    """Look up where the tensors of a step lie; once per step, since a captured graph keeps a table for each look-up."""
    plan_of(bucket).find_addresses()


def squared_norms(bucket: Bucket) -> Tensor:
    """Sums of squares of weights and gradients on this rank, (2, parameters); after ``find``."""
    plan = plan_of(bucket)
    norms[(plan.blocks,)](*plan.tensors, plan.sums, plan.blocks, **plan.shared_constants())
    return plan.summed()


def move(bucket: Bucket, rates: Tensor) -> None:
    """New momentum and weights with the rate of each layer, (parameters,); after ``find``."""
    plan, group = plan_of(bucket), bucket.group
    verdict = torch.zeros((), device=plan.device) if bucket.found_inf is None else bucket.found_inf
    update[(plan.blocks,)](
        *plan.tensors, rates.to(plan.wide), verdict, momentum=group["momentum"], decay=group["weight_decay"],
        nesterov=bool(group["nesterov"]), **plan.shared_constants(),
    )  # fmt: skip


@triton.jit(do_not_specialize=["blocks"])
def norms(
    table, layers, starts, sizes, sums, blocks,
    count: tl.constexpr, wide: tl.constexpr, kind: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Sums of squares of w and of the gradient of a block."""
    block = tl.program_id(0)
    layer, at, size = part(block, layers, starts, sizes, width)
    inside = at < size
    weight = tl.load(pointers(table, layer, at, kind), inside, 0.0).to(wide)
    gradient = tl.load(pointers(table + 2 * count, layer, at, kind), inside, 0.0).to(wide)
    tl.store(sums + block, tl.sum(weight * weight))
    tl.store(sums + blocks + block, tl.sum(gradient * gradient))


@triton.jit
def update(
    table, layers, starts, sizes, rates, verdict,
    momentum: tl.constexpr, decay: tl.constexpr, nesterov: tl.constexpr,
    count: tl.constexpr, wide: tl.constexpr, kind: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """New momentum and weights of a block; none where the verdict is above 0."""
    layer, at, size = part(tl.program_id(0), layers, starts, sizes, width)
    inside = at < size
    place = pointers(table, layer, at, kind)
    buffer = pointers(table + count, layer, at, kind)
    weight = tl.load(place, inside, 0.0).to(wide)
    gradient = tl.load(pointers(table + 2 * count, layer, at, kind), inside, 0.0).to(wide)
    pull = tl.load(rates + layer) * (gradient + decay * weight)
    # Rounded as the next step will read it.
    velocity = (momentum * tl.load(buffer, inside, 0.0).to(wide) + pull).to(kind)
    step = velocity.to(wide)
    if nesterov:
        step = momentum * step + pull
    written = at < tl.where(tl.load(verdict) > 0, 0, size)
    tl.store(buffer, velocity, written)
    tl.store(place, (weight - step).to(kind), written)
