"""What the Triton kernels share: one launch works on all layers of a bucket, one block per program.

Kernels find the tensors through a table of addresses on the device. Sums are added in a fixed order, so that a step is
reproducible to the bit: first those of each block, then, by ``add_sums``, those of each layer. A kernel is compiled
once for all sizes of the tensors, so that this can be done before there is anything to work on.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.launchers import builds_launchers
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
    """Whether Triton can build and run kernels for these tensors."""
    return bucket.weights[0].device.type == "cuda" and bucket.weights[0].dtype in TYPES and builds_launchers()


def plan_of(bucket: Bucket) -> Plan:
    """The plan of the bucket, kept while its weights and moments stay where they are."""
    if "plan" not in bucket.kept:
        bucket.kept["plan"] = Plan(bucket)
    plan: Plan = bucket.kept["plan"]
    return plan


class Plan:
    """Which program does which block, and where the tensors lie, on the device.

    The table of addresses, (rows, parameters), has weights, each kind of moment, gradients, and step counts where there
    are any. A captured graph copies it again in each replay, from pinned memory that is allocated before the capture
    and then belongs to the graph; so gradients may have other addresses in the graph than before.
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
        rows = len(self.addresses()) // len(sizes)
        self.table = torch.empty(rows * len(sizes), dtype=torch.int64, device=self.device)
        self.tensors = [self.table, *(column.to(self.device) for column in (layers, starts, torch.tensor(sizes)))]
        self.sums = torch.empty(2, self.blocks, dtype=self.wide, device=self.device)
        self.known: list[int] = []
        self.spare: Tensor | None = None
        self.captured: list[Tensor] = []

    def find_addresses(self) -> None:
        """Bring the table up to date, without waiting for the device."""
        capturing = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if self.spare is None and not capturing:
            self.spare = self.pinned()
        known = self.addresses()
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

    def addresses(self) -> list[int]:
        """The addresses of the table, row by row."""
        bucket = self.bucket
        steps = [state["step"].data_ptr() for state in bucket.states if "step" in state]
        return [*bucket.pointers, *(tensor.data_ptr() for tensor in bucket.gradients), *steps]

    def pinned(self) -> Tensor:
        """Host memory for a table, from which an accelerator copies without a wait."""
        return torch.empty(self.table.shape, dtype=torch.int64, pin_memory=self.device.type == "cuda")

    def shared_constants(self) -> dict[str, Any]:
        """Constants that every kernel is compiled for."""
        kind = TYPES[self.bucket.weights[0].dtype]
        return {"count": self.count, "wide": TYPES[self.wide], "kind": kind, "width": BLOCK}

    def summed(self) -> Tensor:
        """Sums of each layer, (2, parameters), from those of its blocks in ``sums``."""
        squares = torch.empty(2, self.count, dtype=self.wide, device=self.device)
        add_sums[(self.count, 2)](self.sums, self.firsts, squares, self.blocks, self.count, SUMMED)
        return squares


@triton.jit
def part(block, layers, starts, sizes, width: tl.constexpr):
    """The layer of a block, the places of its elements in the layer, and the layer's size."""
    layer = tl.load(layers + block)
    return layer, tl.load(starts + block) + tl.arange(0, width), tl.load(sizes + layer)


@triton.jit
def pointers(row, layer, at, kind: tl.constexpr):
    """Where elements of a layer lie, by one row of the table of addresses."""
    return tl.load(row + layer).to(tl.pointer_type(kind)) + at


@triton.jit(do_not_specialize=["blocks", "count"])
def add_sums(sums, firsts, squares, blocks, count, summed: tl.constexpr):
    """Sum of squares of one layer, of w or of u, from those of its blocks."""
    layer, kind = tl.program_id(0), tl.program_id(1)
    last = tl.load(firsts + layer + 1)
    total = tl.zeros((summed,), squares.dtype.element_ty)
    for start in range(tl.load(firsts + layer), last, summed):
        at = start + tl.arange(0, summed)
        total += tl.load(sums + kind * blocks + at, at < last, 0.0)
    tl.store(squares + kind * count + layer, tl.sum(total))
