"""LAMB on an accelerator in two passes over memory, each one kernel for all layers (Triton).

The first pass reads weight, gradient and moments, writes the moments and leaves a sum of squares per block of w and of
u; the second reads weight and moments again, computes the same u and writes the weight: ten reads and writes of a
tensor's size against AdamW's seven, and no memory for u.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.triton_plan import part, plan_of, pointers


def directions(bucket: Bucket) -> Tensor:
    """New moments; returns the squared norms of w and u on this rank, (2, parameters)."""
    plan = plan_of(bucket)
    plan.find_addresses()
    one = bucket.ones()[0]
    divisor = one if bucket.divisor is None else bucket.divisor.to(one)
    verdict = torch.zeros_like(one) if bucket.found_inf is None else bucket.found_inf
    constants = {**plan.shared_constants(), **constants_of(bucket)}
    first_pass[(plan.blocks,)](*plan.tensors, plan.sums, divisor, verdict, plan.blocks, **constants)
    return plan.summed()


def apply(bucket: Bucket, factors: Tensor) -> None:
    """Add ``factors``, (parameters,), times u of each layer to its weights; after ``directions``."""
    plan = plan_of(bucket)
    constants = {**plan.shared_constants(), **constants_of(bucket)}
    second_pass[(plan.blocks,)](*plan.tensors, factors.to(plan.wide), **constants)


def constants_of(bucket: Bucket) -> dict[str, Any]:
    """Constants that the kernels are compiled for; changing one compiles them again."""
    group = bucket.group
    beta1, beta2 = group["betas"]
    return {
        "beta1": beta1, "beta2": beta2, "log1": log(beta1), "log2": log(beta2),
        "rate": 1.0 if group["grad_averaging"] else 1 / (1 - beta1), "eps": group["eps"],
        "decay": group["weight_decay"], "correct": bool(group["bias_correction"]),
    }  # fmt: skip


def log(beta: float) -> float:
    """Natural logarithm; for 0, a number so low that every power computed from it is 0."""
    return math.log(beta) if beta > 0 else -1e9


@triton.jit(do_not_specialize=["blocks"])
def first_pass(
    table, layers, starts, sizes, sums, divisor, verdict, blocks,
    count: tl.constexpr, beta1: tl.constexpr, beta2: tl.constexpr, log1: tl.constexpr, log2: tl.constexpr,
    rate: tl.constexpr, eps: tl.constexpr, decay: tl.constexpr, correct: tl.constexpr,
    wide: tl.constexpr, kind: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """New moments of a block, and its sums of squares of w and u."""
    block = tl.program_id(0)
    layer, at, size = part(block, layers, starts, sizes, width)
    inside = at < size
    weight = tl.load(pointers(table, layer, at, kind), inside, 0.0).to(wide)
    first = pointers(table + count, layer, at, kind)
    second = pointers(table + 2 * count, layer, at, kind)
    gradient = tl.load(pointers(table + 3 * count, layer, at, kind), inside, 0.0).to(wide)
    step = tl.load(pointers(table + 4 * count, layer, 0, tl.float32))
    gradient = gradient / tl.load(divisor)
    # Rounded as the second pass and the next step will read them.
    m = (beta1 * tl.load(first, inside, 0.0).to(wide) + (1 - beta1) * gradient).to(kind)
    v = (beta2 * tl.load(second, inside, 0.0).to(wide) + (1 - beta2) * gradient * gradient).to(kind)
    written = at < tl.where(tl.load(verdict) > 0, 0, size)
    tl.store(first, m, written)
    tl.store(second, v, written)
    u = direction(m.to(wide), v.to(wide), weight, step, log1, log2, rate, eps, decay, correct, wide)
    u = tl.where(inside, u, 0.0)
    tl.store(sums + block, tl.sum(weight * weight))
    tl.store(sums + blocks + block, tl.sum(u * u))


@triton.jit
def second_pass(
    table, layers, starts, sizes, factors,
    count: tl.constexpr, beta1: tl.constexpr, beta2: tl.constexpr, log1: tl.constexpr, log2: tl.constexpr,
    rate: tl.constexpr, eps: tl.constexpr, decay: tl.constexpr, correct: tl.constexpr,
    wide: tl.constexpr, kind: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """New weights of a block."""
    layer, at, size = part(tl.program_id(0), layers, starts, sizes, width)
    inside = at < size
    place = pointers(table, layer, at, kind)
    weight = tl.load(place, inside, 0.0).to(wide)
    m = tl.load(pointers(table + count, layer, at, kind), inside, 0.0).to(wide)
    v = tl.load(pointers(table + 2 * count, layer, at, kind), inside, 0.0).to(wide)
    step = tl.load(pointers(table + 4 * count, layer, 0, tl.float32))
    u = direction(m, v, weight, step, log1, log2, rate, eps, decay, correct, wide)
    factor = tl.load(factors + layer)
    tl.store(place, (weight + factor * u).to(kind), at < tl.where(factor == 0, 0, size))


@triton.jit
def direction(
    m, v, weight, step,
    log1: tl.constexpr, log2: tl.constexpr, rate: tl.constexpr, eps: tl.constexpr, decay: tl.constexpr,
    correct: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """u of some elements from their new moments; corrections in float64, since 1 - 0.999 has few digits in float32."""
    if correct:
        m = m / (1 - tl.exp(step.to(tl.float64) * log1)).to(wide)
        v = v / (1 - tl.exp(step.to(tl.float64) * log2)).to(wide)
    return rate * m / (tl.sqrt(v) + eps) + decay * weight
