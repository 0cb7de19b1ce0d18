"""LAMB on a processor in two compiled loops (Numba), with no pass over memory that the formulas don't ask for.

The first loop reads weight, gradient and moments, writes moments and u, and adds the squares of w and u; the second
adds u to the weights, both of which it meets in the cache. Gradients are divided on the way and stay as they are.
One call works through a bucket's pieces by their addresses: to hand over an array each would take as long as the loops.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.tensors import norm_dtype

TYPES = {torch.float32: np.float32, torch.float64: np.float64}
BLOCK = 512
"""Elements that are worked on at a time, in the innermost cache; sums of squares of blocks are added in float64."""
COMPILED: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
"""The order of a sum is the compiler's; NaN and infinity are what they are."""


class Table:
    """Where the pieces of a bucket lie: while weights and moments stay, only gradients and room are looked up anew."""

    def __init__(self, bucket: Bucket) -> None:
        flat = [piece for pieces in bucket.pieces() for piece in pieces]
        self.layers, starts, stops = np.array(flat, np.int64).reshape(-1, 3).T.copy()
        self.sizes = stops - starts
        width = bucket.weights[0].element_size()
        self.offsets = starts * width
        """Of pieces in their layers, in bytes."""
        self.addresses = np.zeros((5, len(flat)), np.int64)
        """Of weights, gradients, first and second moments, and u, for each piece."""
        for row, tensors in ((0, bucket.weights), (2, bucket.moments[0]), (3, bucket.moments[1])):
            self.find(row, tensors)
        self.in_room = (np.cumsum(self.sizes) - self.sizes) * width

    def find(self, row: int, tensors: list[Tensor]) -> None:
        """Take up where ``tensors``, one per layer, lie."""
        self.addresses[row] = np.array([tensor.data_ptr() for tensor in tensors])[self.layers] + self.offsets

    def in_threads(self, work: Callable[[int, int], None]) -> None:
        """Call ``work`` with the first piece and the one after the last of about equal shares, in torch's threads."""
        threads = torch.get_num_threads()
        if threads == 1:
            work(0, len(self.sizes))
            return
        ends = np.cumsum(self.sizes)
        bounds = np.searchsorted(ends, np.linspace(0, self.sizes.sum(), threads + 1)[1:-1], side="right").tolist()
        list(pool(threads).map(work, [0, *bounds], [*bounds, len(ends)]))


def works(bucket: Bucket) -> bool:
    """Whether there are loops for such weights."""
    return bucket.weights[0].dtype in TYPES


def directions(bucket: Bucket, room: Tensor) -> Tensor:
    """New moments, and u of each layer in ``room``; returns squared norms of w and u on this rank, (2, parameters)."""
    table = table_of(bucket)
    table.find(1, bucket.gradients)
    table.addresses[4] = room.data_ptr() + table.in_room
    constants = constants_of(bucket)[table.layers]
    found = np.zeros((2, len(table.sizes)))
    table.in_threads(lambda start, stop: first_loop(start, stop, table.addresses, table.sizes, constants, found))
    squares = [np.bincount(table.layers, weights=each, minlength=len(bucket.weights)) for each in found]
    return torch.from_numpy(np.stack(squares)).to(norm_dtype(bucket.weights[0]))


def apply(bucket: Bucket, room: Tensor, factors: Tensor) -> None:
    """Add ``factors``, (parameters,), times u of each layer, which ``directions`` left in ``room``, to its weights."""
    table = table_of(bucket)
    scalars = factors.to(bucket.weights[0].dtype).numpy()[table.layers]
    table.in_threads(lambda start, stop: second_loop(start, stop, table.addresses, table.sizes, scalars))


def table_of(bucket: Bucket) -> Table:
    """The bucket's table, made anew when weights or moments have moved."""
    if "table" not in bucket.kept:
        bucket.kept["table"] = Table(bucket)
    table: Table = bucket.kept["table"]
    return table


def constants_of(bucket: Bucket) -> NDArray[Any]:
    """What the first loop multiplies with, (parameters, 9), in the type of the weights: no wider one is computed in."""
    group = bucket.group
    beta1, beta2 = group["betas"]
    share = 1 - beta1 if group["grad_averaging"] else 1.0
    scale = 1.0 if bucket.divisor is None else 1 / bucket.divisor.item()
    rows = []
    for state in bucket.states:
        step = float(state["step"])
        corrections = (1 - beta1**step, 1 - beta2**step) if group["bias_correction"] else (1.0, 1.0)
        rows.append([
            scale, beta1, share * scale, beta2, 1 - beta2,
            1 / corrections[0], 1 / corrections[1], group["eps"], group["weight_decay"],
        ])  # fmt: skip
    return np.array(rows, TYPES[bucket.weights[0].dtype])


@intrinsic
def pointer(typing, address, like):
    """``address`` as a pointer to numbers of the type in array ``like``."""
    kind = types.CPointer(like.dtype)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(address, like), generate


@njit(**COMPILED)
def first_loop(start, stop, addresses, sizes, constants, squares):
    """Moments and u of the pieces from ``start`` to ``stop``; ``squares``, (2, pieces), gets the sums of w and of u."""
    for piece in range(start, stop):
        scale, keep1, take1, keep2, take2, correct1, correct2, eps, decay = constants[piece]
        for begin in range(0, sizes[piece], BLOCK):
            size = min(BLOCK, sizes[piece] - begin)
            ahead = begin * constants.itemsize
            w = carray(pointer(addresses[0, piece] + ahead, constants), size)
            g = carray(pointer(addresses[1, piece] + ahead, constants), size)
            m = carray(pointer(addresses[2, piece] + ahead, constants), size)
            v = carray(pointer(addresses[3, piece] + ahead, constants), size)
            u = carray(pointer(addresses[4, piece] + ahead, constants), size)
            average(m, g, keep1, take1)
            average_squares(v, g, keep2, take2, scale)
            of_w, of_u = direction(u, w, m, v, correct1, correct2, eps, decay)
            squares[0, piece] += of_w
            squares[1, piece] += of_u


@njit(**COMPILED)
def average(m, g, keep, take):
    """The first moment of a block. Loops over few arrays each, or they are not made into vector instructions."""
    for i in range(m.size):
        m[i] = keep * m[i] + take * g[i]


@njit(**COMPILED)
def average_squares(v, g, keep, take, scale):
    """The second moment of a block."""
    for i in range(v.size):
        slope = scale * g[i]
        v[i] = keep * v[i] + take * slope * slope


@njit(**COMPILED)
def direction(u, w, m, v, correct1, correct2, eps, decay):
    """u of a block from its new moments; returns the sums of squares of w and of u."""
    of_w = of_u = 0 * eps
    for i in range(u.size):
        update = correct1 * m[i] / (np.sqrt(correct2 * v[i]) + eps) + decay * w[i]
        u[i] = update
        of_w += w[i] * w[i]
        of_u += update * update
    return of_w, of_u


@njit(**COMPILED)
def second_loop(start, stop, addresses, sizes, factors):
    """Add the factor of each piece from ``start`` to ``stop`` times u to w."""
    for piece in range(start, stop):
        w = carray(pointer(addresses[0, piece], factors), sizes[piece])
        u = carray(pointer(addresses[4, piece], factors), sizes[piece])
        add(w, u, factors[piece])


@njit(**COMPILED)
def add(w, u, factor):
    """Add ``factor`` times u to w."""
    for i in range(w.size):
        w[i] += factor * u[i]


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that live as long as the process."""
    return ThreadPoolExecutor(threads, thread_name_prefix="lamb")
