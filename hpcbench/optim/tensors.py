"""Parameters as the optimizers see them: their parts on this rank, in buckets, and the norms of whole tensors.

A sharded parameter (a DTensor, as FSDP2 makes them) is updated where it lies. Its norm is that of the whole tensor,
for which one message per mesh axis carries the sums of squares of a bucket.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from staging.errors import InputError

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether Triton is installed, for kernels on an accelerator; torch's builds for accelerators include it."""
HOST_BUCKET = 1 << 20
"""Elements that a CPU works on at a time, in its cache, so that many small tensors share the cost of a call."""
DEVICE_BUCKET = 1 << 23
"""Elements for which a step holds memory of its own, on an accelerator and for sharded tensors."""
UNBOUNDED = 1 << 62
"""Elements of a bucket for which a step needs no memory of its own."""


def local(tensor: Tensor) -> Tensor:
    """The part of ``tensor`` on this rank: the tensor itself, or the local part of a DTensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gradient(name: str, parameter: Tensor) -> Tensor:
    """The gradient on this rank, in the parameter's memory layout. Raises ``InputError`` for a sparse one."""
    assert parameter.grad is not None
    if parameter.grad.layout != torch.strided:
        shape = tuple(parameter.shape)
        raise InputError(f"{name} takes dense gradients, not a sparse one of shape {shape}; set sparse=False")
    return aligned(local(parameter.grad), local(parameter))


def aligned(tensor: Tensor, like: Tensor) -> Tensor:
    """``tensor`` in the memory order of ``like``, since fused kernels follow memory, not indices.

    Strides of dimensions of size 1 do not affect it: kernels of size 1 have other strides than their gradients.
    """
    strides = zip(tensor.shape, tensor.stride(), like.stride(), strict=True)
    if all(mine == theirs for size, mine, theirs in strides if size > 1):
        return tensor
    return torch.empty_like(like).copy_(tensor)


def lay_out(parameter: Tensor, state: dict[str, Any], names: Iterable[str]) -> None:
    """Give the tensors of these names in the parameter's state its memory layout."""
    for name in names:
        if local(state[name]).stride() != local(parameter).stride():
            state[name] = torch.empty_like(parameter).copy_(state[name])


def bucket_size(parameter: Tensor) -> int:
    """The most elements in a bucket of parameters such as this one; a bucket of a single parameter may have more."""
    return HOST_BUCKET if kind(parameter)[:2] == ("cpu", None) else DEVICE_BUCKET


def buckets(parameters: Sequence[Tensor], most: Callable[[Tensor], int] = bucket_size) -> Iterator[slice]:
    """Slices of consecutive parameters of one kind that a step updates together, closed when full (``most`` elements).

    The sizes of whole tensors decide, so that all ranks make the same buckets.
    """
    start = elements = room = 0
    before: tuple[Any, ...] | None = None
    for end, parameter in enumerate(parameters):
        this, size = kind(parameter), parameter.numel()
        if end > start and (this != before or elements + size > room):
            yield slice(start, end)
            start, elements = end, 0
        if this != before:
            room = most(parameter)
        elements, before = elements + size, this
    if start < len(parameters):
        yield slice(start, len(parameters))


def kind(parameter: Tensor) -> tuple[Any, ...]:
    """What parameters of one bucket share: device, mesh with the axes that shard them, and data type."""
    if not isinstance(parameter, DTensor):
        return parameter.device.type, None, parameter.device, parameter.dtype
    return parameter.device.type, parameter.device_mesh, sharding_axes(parameter), parameter.dtype


def sharding_axes(parameter: DTensor) -> tuple[int, ...]:
    """The axes of the mesh over which the tensor is cut."""
    return tuple(axis for axis, placement in enumerate(parameter.placements) if not placement.is_replicate())


def squared_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Sums of squares of local tensors, (len(tensors),), in at least float32."""
    wide = norm_dtype(tensors[0])
    if tensors[0].device.type == "cpu":
        return torch.tensor(sums_of_squares([flattened(tensor) for tensor in tensors]), dtype=wide)
    return torch.stack(torch._foreach_norm(list(tensors), 2, dtype=wide)).square_()


def sums_of_squares(vectors: Sequence[Tensor]) -> list[float]:
    """Sums of squares of vectors of one type on the host, in at least float32."""
    wide = norm_dtype(vectors[0])
    if vectors[0].dtype != wide:
        vectors = [vector.to(wide) for vector in vectors]
    return [torch.dot(vector, vector).item() for vector in vectors]


def norm_dtype(tensor: Tensor) -> torch.dtype:
    """The type of norms of ``tensor``: its own, but at least float32."""
    return torch.promote_types(tensor.dtype, torch.float32)


def flattened(tensor: Tensor) -> Tensor:
    """A dense tensor as a vector, in memory order; for any other tensor, a copy."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    if not is_dense(tensor):
        return tensor.reshape(-1)
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one piece of memory, each in a place of its own, in any order."""
    length = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != length:
                return tensor.numel() == 0
            length *= size
    return True


shard_message: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar("shard_message", default=nullcontext)
"""Called and entered around every sum of norms over ranks, so that a run can tell what it waits for."""


def summed_over_shards(squares: Tensor, parameter: Tensor) -> Tensor:
    """Sums of squares of the whole tensors from those of this rank's parts, all cut as ``parameter`` is."""
    if isinstance(parameter, DTensor):
        for axis in sharding_axes(parameter):
            with shard_message.get()():
                dist.all_reduce(squares, group=parameter.device_mesh.get_group(axis))
    return squares


def global_norm(parts: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The norm of all gradients as one vector, a scalar on the device of the first; the host does not wait.

    ``parts`` has a pair for each bucket: one of its parameters, and the sum of squares of its gradients on this rank.
    """
    total: Tensor | None = None
    for parameter, square in parts:
        squares = summed_over_shards(square, parameter)
        total = squares if total is None else total + squares.to(total.device)
    return torch.ones(()) if total is None else total.sqrt()


def add_scaled(targets: list[Tensor], tensors: list[Tensor], factors: Tensor) -> None:
    """Add ``factors[i] * tensors[i]`` to each of ``targets``; ``tensors`` may be overwritten."""
    if targets[0].device.type == "cpu":
        for target, tensor, factor in zip(targets, tensors, factors.tolist(), strict=True):
            target.add_(tensor, alpha=factor)
        return
    torch._foreach_mul_(tensors, list(factors.to(tensors[0].dtype).unbind()))
    torch._foreach_add_(targets, tensors)
