"""LAMB on a CPU in two compiled loops (Numba), with no pass over memory that the formulas do not require.

The first loop reads weight, gradient and moments, writes moments and u, and sums the squares of w and u; the second
adds u to the weights, and finds both in the cache. Gradients are divided as they are read and stay as they are in
memory. One call works through many pieces by address: passing an array for each would take as long as the loops.
Whole tensors are worked on in chunks of layers (``step``), so that weights change soon after their norms are known.
Tensors with only a part on this rank wait for all norms of their bucket (``directions`` and ``apply``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
"""Elements processed at a time, in the innermost cache; sums of squares of blocks are added in float64."""
MOMENTS = ("exp_avg", "exp_avg_sq")
CHUNK = 1 << 20
"""Layers of a chunk have at most this many elements together; a larger layer is a chunk of its own."""
COMPILED: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
"""The compiler may choose the order of a sum; NaN and infinity keep their meaning."""


class Table:
    """Where the pieces of a bucket lie. While weights and moments stay, only gradients and room are looked up again."""

    def __init__(self, bucket: Bucket) -> None:
        flat = [piece for pieces in bucket.pieces() for piece in pieces]
        self.layers, starts, stops = np.array(flat, np.int64).reshape(-1, 3).T.copy()
        """The layer of each piece."""
        self.sizes = stops - starts
        width = bucket.weights[0].element_size()
        self.offsets = starts * width
        """Offset of each piece in its layer, in bytes."""
        self.addresses = np.zeros((5, len(flat)), np.int64)
        """Addresses of weights, gradients, first and second moments, and u, for each piece."""
        for row, tensors in ((0, bucket.weights), (2, bucket.moments[0]), (3, bucket.moments[1])):
            self.find(row, tensors)
        before = np.cumsum(self.sizes) - self.sizes
        self.in_room = before * width
        """Offset of each piece's u in a room for all pieces, in bytes."""
        layer_sizes = [weight.numel() for weight in bucket.weights]
        self.chunks = [np.searchsorted(self.layers, chunk).tolist() for chunk in chunks(layer_sizes)]
        """First piece of each chunk and the one after its last."""
        self.chunk_elements = max((int(self.sizes[start:stop].sum()) for start, stop in self.chunks), default=0)
        """Elements of the largest chunk."""
        self.in_chunk = self.in_room.copy()
        """Offset of each piece's u in a room for its chunk, in bytes."""
        for start, stop in self.chunks:
            self.in_chunk[start:stop] -= self.in_room[start : start + 1]

    def find(self, row: int, tensors: list[Tensor]) -> None:
        """Look up the addresses of ``tensors``, one per layer."""
        self.addresses[row] = np.array([tensor.data_ptr() for tensor in tensors])[self.layers] + self.offsets

    def in_threads(self, work: Callable[[int, int], None], start: int = 0, stop: int | None = None) -> None:
        """Call ``work`` in threads, with the bounds of about equal shares of the pieces from ``start`` to ``stop``."""
        threads, stop = torch.get_num_threads(), len(self.sizes) if stop is None else stop
        if threads == 1:
            work(start, stop)
            return
        ends = np.cumsum(self.sizes[start:stop])
        shares = np.linspace(0, ends[-1] if len(ends) else 0, threads + 1)[1:-1]
        bounds = (start + np.searchsorted(ends, shares, side="right")).tolist()
        list(pool(threads).map(work, [start, *bounds], [*bounds, stop]))


def chunks(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First layer of each chunk and the one after its last."""
    start = elements = 0
    for layer, size in enumerate(sizes):
        if layer > start and elements + size > CHUNK:
            yield start, layer
            start, elements = layer, 0
        elements += size
    if start < len(sizes):
        yield start, len(sizes)


def works(dtype: torch.dtype) -> bool:
    """Whether there are loops for weights of this type."""
    return dtype in TYPES


def compile_loops(dtype: torch.dtype, group: dict[str, Any], *, whole: bool) -> None:
    """Compile the loops for weights of this type and the options of ``group``, by a step on one made-up weight.

    ``whole`` as where tensors are worked on in chunks.
    """
    weight, *moments = torch.zeros(3, 1, dtype=dtype).unbind()
    weight.grad = torch.zeros_like(weight)
    state = dict(zip(MOMENTS, moments, strict=True), step=torch.ones(()))
    bucket = Bucket(group, [weight], [state], MOMENTS)
    bucket.prepare("LAMB", None)
    room = torch.empty(1, dtype=dtype)
    if group["max_grad_norm"]:
        squared_norm(bucket)
    if whole:
        step(bucket, lambda bucket, elements: room, True)
    else:
        directions(bucket, room)
        apply(bucket, room, torch.zeros(1))


def squared_norm(bucket: Bucket) -> Tensor:
    """The sum of squares of all gradients on this rank, in one pass."""
    table = table_of(bucket)
    table.find(1, bucket.gradients)
    sums = np.zeros(len(table.sizes))
    like = np.empty(0, TYPES[bucket.weights[0].dtype])
    table.in_threads(lambda start, stop: norm_loop(start, stop, table.addresses, table.sizes, like, sums))
    return torch.tensor(sums.sum(), dtype=norm_dtype(bucket.weights[0]))


def step(bucket: Bucket, room_for: Callable[[Bucket, int], Tensor], adapt: bool) -> Tensor:
    """New moments and weights by chunks, each with ``room_for`` its u; returns the trust ratios, (parameters,)."""
    table, group, kind = table_of(bucket), bucket.group, TYPES[bucket.weights[0].dtype]
    table.find(1, bucket.gradients)
    table.addresses[4] = room_for(bucket, table.chunk_elements).data_ptr() + table.in_chunk
    constants = constants_of(bucket)[table.layers]
    piece_squares, factors = np.zeros((2, len(table.sizes))), np.empty(len(table.sizes), kind)
    squares, ratios = np.zeros((2, len(bucket.weights))), np.ones(len(bucket.weights))
    lr, (low, high) = float(group["lr"]), map(float, group["trust_bounds"])

    def first(start: int, stop: int) -> None:
        first_loop(start, stop, table.addresses, table.sizes, constants, piece_squares)

    def second(start: int, stop: int) -> None:
        second_loop(start, stop, table.addresses, table.sizes, factors)

    for start, stop in table.chunks:
        table.in_threads(first, start, stop)
        trust(start, stop, table.layers, piece_squares, squares, ratios, factors, lr, low, high, adapt)
        table.in_threads(second, start, stop)
    return torch.from_numpy(ratios).to(norm_dtype(bucket.weights[0]))


def directions(bucket: Bucket, room: Tensor) -> Tensor:
    """New moments, and u of each layer in ``room``; returns squared norms of w and u on this rank, (2, parameters)."""
    table = table_of(bucket)
    table.find(1, bucket.gradients)
    table.addresses[4] = room.data_ptr() + table.in_room
    constants = constants_of(bucket)[table.layers]
    piece_squares = np.zeros((2, len(table.sizes)))
    table.in_threads(
        lambda start, stop: first_loop(start, stop, table.addresses, table.sizes, constants, piece_squares)
    )
    squares = [np.bincount(table.layers, weights=row, minlength=len(bucket.weights)) for row in piece_squares]
    return torch.from_numpy(np.stack(squares)).to(norm_dtype(bucket.weights[0]))


def apply(bucket: Bucket, room: Tensor, factors: Tensor) -> None:
    """Add ``factors``, (parameters,), times u of each layer, which ``directions`` left in ``room``, to its weights."""
    table = table_of(bucket)
    scalars = factors.to(bucket.weights[0].dtype).numpy()[table.layers]
    table.in_threads(lambda start, stop: second_loop(start, stop, table.addresses, table.sizes, scalars))


def table_of(bucket: Bucket) -> Table:
    """The bucket's table, rebuilt when weights or moments have moved."""
    if "table" not in bucket.kept:
        bucket.kept["table"] = Table(bucket)
    table: Table = bucket.kept["table"]
    return table


def constants_of(bucket: Bucket) -> NDArray[Any]:
    """The first loop's constants, (parameters, 9), in the type of the weights, so that no wider type is computed in."""
    group = bucket.group
    beta1, beta2 = group["betas"]
    # As in the other implementations, m is an average; the sum is the average divided by 1 - beta1.
    rate = 1.0 if group["grad_averaging"] else 1 / (1 - beta1)
    scale = 1.0 if bucket.divisor is None else 1 / bucket.divisor.item()
    constants = np.empty((len(bucket.states), 9))
    constants[:] = scale, beta1, (1 - beta1) * scale, beta2, 1 - beta2, rate, 1.0, group["eps"], group["weight_decay"]
    if group["bias_correction"]:
        steps = np.array([state["step"].item() for state in bucket.states])
        constants[:, 5], constants[:, 6] = rate / (1 - beta1**steps), 1 / (1 - beta2**steps)
    return constants.astype(TYPES[bucket.weights[0].dtype])


@intrinsic
def pointer(typing, address, like):
    """``address`` as a pointer to numbers of the type in array ``like``."""
    kind = types.CPointer(like.dtype)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(address, like), generate


@njit(**COMPILED)
def first_loop(start, stop, addresses, sizes, constants, squares):
    """Moments and u of the pieces from ``start`` to ``stop``; ``squares``, (2, pieces), gets the sums for w and u."""
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
    """The first moment of a block. Each loop is over few arrays, as it is not vectorised otherwise."""
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
def trust(start, stop, layers, piece_squares, squares, ratios, factors, lr, low, high, adapt):
    """Trust ratios of the layers with the pieces from ``start`` to ``stop``, and the factor of u of each piece."""
    for piece in range(start, stop):
        squares[0, layers[piece]] += piece_squares[0, piece]
        squares[1, layers[piece]] += piece_squares[1, piece]
    for piece in range(start, stop):
        layer = layers[piece]
        of_w, of_u = np.sqrt(squares[0, layer]), np.sqrt(squares[1, layer])
        if adapt and of_w > 0 and of_u > 0:
            ratios[layer] = min(max(of_w / of_u, low), high)
        factors[piece] = -lr * ratios[layer]


@njit(**COMPILED)
def norm_loop(start, stop, addresses, sizes, like, squares):
    """The sums of squares of the gradients of the pieces from ``start`` to ``stop``."""
    for piece in range(start, stop):
        for begin in range(0, sizes[piece], BLOCK):
            size = min(BLOCK, sizes[piece] - begin)
            squares[piece] += square(carray(pointer(addresses[1, piece] + begin * like.itemsize, like), size))


@njit(**COMPILED)
def square(g):
    """The sum of squares of a block."""
    total = 0 * g[0]
    for i in range(g.size):
        total += g[i] * g[i]
    return total


@njit(**COMPILED)
def second_loop(start, stop, addresses, sizes, factors):
    """Add u times the factor of its piece to w, for the pieces from ``start`` to ``stop``."""
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
