"""LAMB on a processor in two compiled loops (Numba), with no pass over memory that the formulas don't ask for.

The first loop reads weight, gradient and moments, writes moments and u, and adds the squares of w and u; the second
adds u to the weights, both of which it meets in the cache. Gradients are divided on the way and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.tensors import norm_dtype

Numbers = NDArray[Any]

TYPES = {torch.float32: np.float32, torch.float64: np.float64}
BLOCK = 1024
"""Elements that are worked on at a time, in the innermost cache; sums of squares of blocks are added in float64."""
COMPILED = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
"""The order of a sum is the compiler's; NaN and infinity are what they are."""


def works(bucket: Bucket) -> bool:
    """Whether there are loops for such weights."""
    return bucket.weights[0].dtype in TYPES


def directions(bucket: Bucket, room: Tensor) -> Tensor:
    """New moments, and u of each layer in ``room``; returns squared norms of w and u on this rank, (2, parameters)."""
    constants = [constants_of(bucket, float(state["step"])) for state in bucket.states]
    gradients = arrays(bucket.cut(bucket.gradients))
    weights, updates = weights_and_room(bucket, room)
    first, second = kept(bucket, "arrays of moments", lambda: [arrays(cut) for cut in bucket.cut_moments()])

    def work(at: int) -> list[tuple[float, float]]:
        parts = zip(weights[at], gradients[at], first[at], second[at], updates[at], strict=True)
        return [
            first_loop(*part, *constants[layer]) for (layer, _, _), part in zip(bucket.pieces()[at], parts, strict=True)
        ]

    squares = np.zeros((2, len(bucket.weights)))
    for piece, found in zip(bucket.pieces(), in_threads(work, len(bucket.pieces())), strict=True):
        for (layer, _, _), both in zip(piece, found, strict=True):
            squares[:, layer] += both
    return torch.from_numpy(squares).to(norm_dtype(bucket.weights[0]))


def apply(bucket: Bucket, room: Tensor, factors: Tensor) -> None:
    """Add ``factors``, (parameters,), times u of each layer to its weights."""
    scalars = factors.to(bucket.weights[0].dtype).numpy()
    weights, updates = weights_and_room(bucket, room)

    def work(at: int) -> None:
        for (layer, _, _), weight, update in zip(bucket.pieces()[at], weights[at], updates[at], strict=True):
            second_loop(weight, update, scalars[layer])

    for _ in in_threads(work, len(bucket.pieces())):
        pass


def constants_of(bucket: Bucket, step: float) -> list[Any]:
    """What the first loop multiplies with, in the type of the weights, so that nothing is computed in a wider one."""
    group = bucket.group
    beta1, beta2 = group["betas"]
    share = 1 - beta1 if group["grad_averaging"] else 1.0
    divisor = 1.0 if bucket.divisor is None else bucket.divisor.item()
    corrections = (1 - beta1**step, 1 - beta2**step) if group["bias_correction"] else (1.0, 1.0)
    numbers = [
        1 / divisor, beta1, share, beta2, 1 - beta2,
        1 / corrections[0], 1 / corrections[1], group["eps"], group["weight_decay"],
    ]  # fmt: skip
    return [TYPES[bucket.weights[0].dtype](number) for number in numbers]


@njit(**COMPILED)
def first_loop(w, g, m, v, u, scale, keep1, take1, keep2, take2, correct1, correct2, eps, decay):
    """Moments and u of some elements of a layer; returns the sums of squares of w and of u."""
    squares_w = squares_u = 0.0
    for start in range(0, w.size, BLOCK):
        stop = min(start + BLOCK, w.size)
        average(m[start:stop], g[start:stop], keep1, take1 * scale)
        average_squares(v[start:stop], g[start:stop], keep2, take2, scale)
        of_w, of_u = direction(
            u[start:stop], w[start:stop], m[start:stop], v[start:stop], correct1, correct2, eps, decay
        )
        squares_w += of_w
        squares_u += of_u
    return squares_w, squares_u


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
def second_loop(w, u, factor):
    """Add ``factor`` times u to w."""
    for i in range(w.size):
        w[i] += factor * u[i]


def arrays(cut: list[list[Tensor]]) -> list[list[Numbers]]:
    """The same memory as arrays."""
    return [[tensor.numpy() for tensor in piece] for piece in cut]


def weights_and_room(bucket: Bucket, room: Tensor) -> tuple[list[list[Numbers]], list[list[Numbers]]]:
    """The pieces of the weights and of the room as arrays, kept while nothing moves."""
    weights = kept(bucket, "arrays of weights", lambda: arrays(bucket.cut_weights()))
    updates = kept(bucket, f"arrays of room {room.data_ptr()}", lambda: arrays(bucket.cut_room(room)))
    return weights, updates


def kept(bucket: Bucket, name: str, make: Callable[[], Any]) -> Any:
    """What ``make`` returned the first time."""
    if name not in bucket.kept:
        bucket.kept[name] = make()
    return bucket.kept[name]


def in_threads(work: Callable[[int], Any], count: int) -> Iterable[Any]:
    """What ``work`` returns for 0 to ``count - 1``, in order, done by as many threads as torch would use."""
    threads = min(torch.get_num_threads(), count)
    return map(work, range(count)) if threads < 2 else pool(threads).map(work, range(count))


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that live as long as the process."""
    return ThreadPoolExecutor(threads, thread_name_prefix="lamb")
