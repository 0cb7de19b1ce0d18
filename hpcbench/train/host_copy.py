"""Bit-exact copies of a training state in host memory, in buffers that are reused for the next checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from hpcbench.parallel.shard_gathering import ShardBuffer, ShardCopy


class HostCopy:
    """Copies trees of dicts, lists and tuples that contain tensors; other values are kept as they are.

    Tensors keep type and layout. Of a sharded tensor only this rank's shard is copied; a ``ShardCopy`` takes its place.
    Buffers are pinned if tensors come from an accelerator. A second copy overwrites the first.
    """

    def __init__(self) -> None:
        self._buffers: list[tuple[Tensor, bool]] = []
        """Each with whether it is pinned; asking the tensor would initialize the driver of an accelerator."""
        self._next = 0
        self.shards = ShardBuffer()

    def copy(self, tree: Any) -> Any:
        """Copy the tree as it is at this moment, even if an accelerator is still computing it."""
        self._next = 0
        self.shards.reserve([tensor for tensor in tensors(tree) if isinstance(tensor, DTensor)])
        with torch.no_grad():
            copied = self._copied(tree)
        del self._buffers[self._next :]
        if self.shards.is_pinned or any(pinned for _, pinned in self._buffers):
            torch.accelerator.synchronize()
        return copied

    @property
    def nbytes(self) -> int:
        """Bytes of host memory that the buffers take."""
        return sum(buffer.nbytes for buffer, _ in self._buffers) + self.shards.nbytes

    def _copied(self, value: Any) -> Any:
        if isinstance(value, DTensor):
            return self.shards.copy(value)
        if isinstance(value, Tensor):
            return self._buffer(value.detach()).copy_(value, non_blocking=True)
        if isinstance(value, dict):
            return {key: self._copied(child) for key, child in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copied(child) for child in value)
        return value

    def _buffer(self, like: Tensor) -> Tensor:
        """The next buffer, with the shape, type and strides of ``like``; reuses that of the last copy if it fits."""
        number, self._next = self._next, self._next + 1
        pin = like.device.type != "cpu"
        if number < len(self._buffers):
            buffer, pinned = self._buffers[number]
            if pinned == pin and suits(buffer, like):
                return buffer
        fresh = torch.empty_like(like, device="cpu", pin_memory=pin)
        self._buffers[number : number + 1] = [(fresh, pin)]
        return fresh


def suits(buffer: Tensor, tensor: Tensor) -> bool:
    """Whether ``tensor`` can be copied into ``buffer`` with everything that a file keeps of it."""
    fresh = torch.empty_like(tensor, device="meta")
    return buffer.shape == tensor.shape and buffer.dtype == tensor.dtype and buffer.stride() == fresh.stride()


def tensors(tree: Any) -> Iterator[Tensor]:
    """All tensors of a tree, in its order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors(value)


def tree_bytes(tree: Any) -> int:
    """Bytes of all tensors of a tree; sharded ones count as a whole."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(tree))


def without_shards(tree: Any, wholes: Iterator[Tensor]) -> Any:
    """``tree`` with each ``ShardCopy`` replaced by the next of ``wholes``."""
    if isinstance(tree, ShardCopy):
        return next(wholes)
    if isinstance(tree, dict):
        return {key: without_shards(value, wholes) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(without_shards(value, wholes) for value in tree)
    return tree
