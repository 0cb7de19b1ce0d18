"""Gathers the shards of tensors (FSDP2) on rank 0, on the host, concurrently with training and its messages.

Each rank copies its shards into one flat buffer while the training waits. The buffers are then sent over a separate
process group, which a thread may use while the training uses the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, prod
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

ALIGNMENT = 64
"""Bytes; each shard in a buffer begins at a multiple of this."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class ShardCopy:
    """A placeholder for a sharded tensor: what rank 0 must know to assemble it."""

    shape: torch.Size
    dtype: torch.dtype
    dim: int
    """The dimension that is cut; -1 if every rank has the whole tensor."""
    ranks: tuple[int, ...]
    """Global ranks that each have a part, in the order of the parts; rank 0 is one of them."""

    def extent(self, rank: int) -> tuple[int, int]:
        """Start and length of the part of ``rank`` in the dimension that is cut, as ``torch.chunk`` cuts it."""
        size, parts = self.shape[self.dim], len(self.ranks)
        start = min(self.ranks.index(rank) * ceil(size / parts), size)
        return start, min(ceil(size / parts), size - start)

    def local_shape(self, rank: int) -> list[int]:
        """Shape of the part of ``rank``; a rank that is not among ``ranks`` has nothing to send."""
        shape = list(self.shape)
        if rank not in self.ranks:
            return [0]
        if self.dim >= 0:
            shape[self.dim] = self.extent(rank)[1]
        elif rank != 0:
            return [0]
        return shape

    def local_bytes(self, rank: int) -> int:
        """Bytes of the part of ``rank``."""
        return prod(self.local_shape(rank)) * self.dtype.itemsize


class ShardBuffer:
    """This rank's shards in one piece of host memory, pinned if they come from an accelerator."""

    def __init__(self) -> None:
        self._flat = torch.empty(0, dtype=torch.uint8)
        self._wholes: list[Tensor] = []
        self._received = torch.empty(0, dtype=torch.uint8)
        self._used = 0
        self.is_pinned = False
        """Whether shards come from an accelerator."""
        self.copies: list[ShardCopy] = []

    @property
    def nbytes(self) -> int:
        """Bytes of host memory: this rank's shards and, on rank 0, those of one other rank and the whole tensors."""
        return self._flat.nbytes + self._received.nbytes + sum(whole.nbytes for whole in self._wholes)

    def reserve(self, sharded: Sequence[DTensor]) -> None:
        """Allocate memory for these tensors, unless it is there already, and forget the shards of the last time."""
        described = [describe(tensor) for tensor in sharded]
        self._used, self.copies = 0, []
        if not described:
            return
        rank, ranks = dist.get_rank(), sharing_ranks(described)
        size, self.is_pinned = packed_bytes(described, rank), sharded[0].device.type != "cpu"
        if len(self._flat) != size:
            self._flat = torch.empty(size, dtype=torch.uint8, pin_memory=self.is_pinned)
        if rank == 0:
            # Here and not when they are filled: a lack of memory is reported before the others wait for rank 0.
            largest = max((packed_bytes(described, other) for other in ranks if other != 0), default=0)
            if len(self._received) != largest:
                self._received = torch.empty(largest, dtype=torch.uint8)
            if [(whole.shape, whole.dtype) for whole in self._wholes] != [
                (copy.shape, copy.dtype) for copy in described
            ]:
                self._wholes = [torch.empty(copy.shape, dtype=copy.dtype) for copy in described]

    def copy(self, tensor: DTensor) -> ShardCopy:
        """Append a copy of this rank's shard to the buffer; ``reserve`` must have included the tensor."""
        description = describe(tensor)
        self.copies.append(description)
        rank = dist.get_rank()
        if description.local_bytes(rank):
            part, self._used = unpacked(self._flat, self._used, description, rank)
            part.copy_(tensor.to_local(), non_blocking=True)
        return description

    def gather(self, group: Any) -> list[Tensor] | None:
        """The whole tensors on rank 0, in the order in which they were copied; ``None`` on the others. Collective."""
        if not self.copies:
            return []
        rank = dist.get_rank()
        if rank != 0:
            if len(self._flat):
                dist.send(self._flat, dst=0, group=group)
            return None
        self._place(self._flat, 0)
        for other in sharing_ranks(self.copies):
            size = packed_bytes(self.copies, other)
            if other != 0 and size:
                dist.recv(self._received[:size], src=other, group=group)
                self._place(self._received, other)
        return self._wholes

    def _place(self, flat: Tensor, rank: int) -> None:
        offset = 0
        for whole, description in zip(self._wholes, self.copies, strict=True):
            if description.local_bytes(rank):
                part, offset = unpacked(flat, offset, description, rank)
                to = whole.narrow(description.dim, *description.extent(rank)) if description.dim >= 0 else whole
                # Not with torch, which would take all cores for it, away from the training.
                np.copyto(as_integers(to), as_integers(part))


def describe(tensor: DTensor) -> ShardCopy:
    """What rank 0 must know of a tensor that is cut along at most one axis of its mesh and copied over the others."""
    cut = [axis for axis, placement in enumerate(tensor.placements) if not placement.is_replicate()]
    assert len(cut) <= 1, f"sharded more than once: {tensor.placements}"
    if not cut:
        return ShardCopy(tensor.shape, tensor.dtype, -1, (0,))
    placement = tensor.placements[cut[0]]
    assert isinstance(placement, Shard), f"no shard: {placement}"
    ranks = tensor.device_mesh.mesh.movedim(cut[0], -1).reshape(-1, tensor.device_mesh.size(cut[0]))[0]
    among = tuple(ranks.tolist())
    # A mesh that is only a part of the run's has copies of what the part with rank 0 has; those are not sent.
    return ShardCopy(tensor.shape, tensor.dtype, placement.dim, among if 0 in among else (0,))


def sharing_ranks(copies: Sequence[ShardCopy]) -> tuple[int, ...]:
    """The ranks that have parts, the same for all tensors that are cut; rank 0 if none is."""
    rank_groups = {copy.ranks for copy in copies if copy.dim >= 0} or {(0,)}
    assert len(rank_groups) == 1, f"sharded over different ranks: {rank_groups}"
    return rank_groups.pop()


def packed_bytes(copies: Sequence[ShardCopy], rank: int) -> int:
    """Bytes of the buffer of ``rank``."""
    return sum(aligned(copy.local_bytes(rank)) for copy in copies)


def unpacked(flat: Tensor, offset: int, description: ShardCopy, rank: int) -> tuple[Tensor, int]:
    """The shard of ``rank`` at ``offset`` in its buffer, as a view, and the offset of the next."""
    size = description.local_bytes(rank)
    part = flat[offset : offset + size].view(description.dtype).view(description.local_shape(rank))
    return part, offset + aligned(size)


def as_integers(tensor: Tensor) -> NDArray[Any]:
    """The bits of a tensor on the host as integers, without a copy; numpy lacks some of torch's types."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(INTEGERS[tensor.element_size()]).numpy()


def aligned(size: int) -> int:
    """``size`` rounded up, so that what follows may be of any type."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def own_group(timeout_s: float) -> Any:
    """A gloo process group for these messages only; collective over all ranks of the run."""
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
