"""LAMB on an accelerator in two passes over memory, each one kernel for all layers (Triton).

The first pass reads weight, gradient and moments, writes the moments and leaves a sum of squares per block of w and of
u; the second reads weight and moments again, makes the same u and writes the weight: ten reads and writes of a tensor's
size beside AdamW's seven, and no memory for u. Kernels find the tensors by a table of addresses on the device; sums
are added in a fixed order, so that a step repeats to the bit.
"""

from __future__ import annotations

import math
import shutil
from os import environ
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.tensors import norm_dtype

BLOCK = 4096
"""Elements of one program."""
SUMMED = 256
"""Sums of blocks that are added at a time."""
TYPES = {
    torch.float64: tl.float64,
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


def works(bucket: Bucket) -> bool:
    """Whether Triton can build and run kernels for these tensors; it needs a C compiler for their launchers."""
    compiler = environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return bucket.weights[0].device.type == "cuda" and bucket.weights[0].dtype in TYPES and compiler is not None


def directions(bucket: Bucket) -> Tensor:
    """New moments; returns the squared norms of w and u on this rank, (2, parameters)."""
    plan = plan_of(bucket)
    plan.find_addresses()
    one = bucket.ones()[0]
    divisor = one if bucket.divisor is None else bucket.divisor.to(one)
    verdict = torch.zeros_like(one) if bucket.found_inf is None else bucket.found_inf
    first_pass[(plan.blocks,)](*plan.tensors, plan.sums, divisor, verdict, plan.blocks, **plan.constants())
    squares = torch.empty(2, plan.count, dtype=plan.wide, device=plan.device)
    add_sums[(plan.count, 2)](plan.sums, plan.firsts, squares, plan.blocks, plan.count, SUMMED)
    return squares


def apply(bucket: Bucket, factors: Tensor) -> None:
    """Add ``factors``, (parameters,), times u of each layer to its weights; after ``directions``."""
    plan = plan_of(bucket)
    second_pass[(plan.blocks,)](*plan.tensors, factors.to(plan.wide), **plan.constants())


def plan_of(bucket: Bucket) -> Plan:
    """The plan of the bucket, kept while its weights and moments stay where they are."""
    if "plan" not in bucket.kept:
        bucket.kept["plan"] = Plan(bucket)
    plan: Plan = bucket.kept["plan"]
    return plan


class Plan:
    """Which program does which block, and where the tensors lie, on the device.

    The table of addresses, (5, parameters), has weights, moments m and v, gradients, counts of steps. A captured graph
    copies it anew in each replay, from pinned memory that is made before the capture and then belongs to the graph; so
    gradients may have another place in the graph than before.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.device = bucket.weights[0].device
        self.wide = norm_dtype(bucket.weights[0])
        sizes = [weight.numel() for weight in bucket.weights]
        counts = [triton.cdiv(size, BLOCK) for size in sizes]
        self.count, self.blocks = len(sizes), sum(counts)
        firsts = torch.tensor([0, *counts]).cumsum(0)
        layers = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(counts))
        starts = (torch.arange(self.blocks) - firsts[layers]) * BLOCK
        self.firsts = firsts.to(self.device)
        self.table = torch.empty(5 * len(sizes), dtype=torch.int64, device=self.device)
        self.tensors = [self.table, *(each.to(self.device) for each in (layers, starts, torch.tensor(sizes)))]
        self.sums = torch.empty(2, self.blocks, dtype=self.wide, device=self.device)
        self.known: list[int] = []
        self.spare: Tensor | None = None
        self.captured: list[Tensor] = []

    def find_addresses(self) -> None:
        """Bring the table up to date, without waiting for the device."""
        capturing = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if self.spare is None and not capturing:
            self.spare = self.pinned()
        bucket = self.bucket
        known = [*bucket.pointers, *(tensor.data_ptr() for tensor in bucket.gradients)]
        known += [state["step"].data_ptr() for state in bucket.states]
        if known == self.known:
            return
        host = self.pinned() if self.spare is None or not capturing else self.spare
        host.copy_(torch.tensor(known))
        self.table.copy_(host, non_blocking=True)
        self.known = known
        if capturing:
            self.captured.append(host)
            # The table changes when the graph is replayed, not now.
            self.spare, self.known = None, []

    def pinned(self) -> Tensor:
        """Room for a table on the host, from which an accelerator copies without a wait."""
        return torch.empty(self.table.shape, dtype=torch.int64, pin_memory=self.device.type == "cuda")

    def constants(self) -> dict[str, Any]:
        """What the kernels are compiled for; a change of these numbers compiles them again."""
        group = self.bucket.group
        beta1, beta2 = group["betas"]
        return {
            "count": self.count, "beta1": beta1, "beta2": beta2, "log1": log(beta1), "log2": log(beta2),
            "rate": 1.0 if group["grad_averaging"] else 1 / (1 - beta1), "eps": group["eps"],
            "decay": group["weight_decay"], "correct": bool(group["bias_correction"]),
            "wide": TYPES[self.wide], "kind": TYPES[self.bucket.weights[0].dtype], "width": BLOCK,
        }  # fmt: skip


def log(beta: float) -> float:
    """Natural logarithm, for 0 a number whose powers are all 0."""
    return math.log(beta) if beta > 0 else -1e9


@triton.jit
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
    # As they will be read in the second pass, and by the next step.
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
def part(block, layers, starts, sizes, width: tl.constexpr):
    """The layer of a block, the places of its elements in the layer, and the layer's size."""
    layer = tl.load(layers + block)
    return layer, tl.load(starts + block) + tl.arange(0, width), tl.load(sizes + layer)


@triton.jit
def pointers(row, layer, at, kind: tl.constexpr):
    """Where elements of a layer lie, by one row of the table of addresses."""
    return tl.load(row + layer).to(tl.pointer_type(kind)) + at


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


@triton.jit
def add_sums(sums, firsts, squares, blocks, count, summed: tl.constexpr):
    """Sum of squares of one layer, of w or of u, from those of its blocks."""
    layer, kind = tl.program_id(0), tl.program_id(1)
    last = tl.load(firsts + layer + 1)
    total = tl.zeros((summed,), squares.dtype.element_ty)
    for start in range(tl.load(firsts + layer), last, summed):
        at = start + tl.arange(0, summed)
        total += tl.load(sums + kind * blocks + at, at < last, 0.0)
    tl.store(squares + kind * count + layer, tl.sum(total))
