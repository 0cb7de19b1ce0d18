"""Copies of a training state in host memory, bit for bit, into buffers that serve again at the next checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from hpcbench.parallel.shard_gathering import ShardBuffer, ShardCopy


class HostCopy:
    """Copies trees of dicts, lists and tuples with tensors in them; what else is in them is copied as it is.

    Tensors keep type and layout. Of a sharded one only this rank's shard is copied, as a ``ShardCopy`` in its place.
    Buffers are pinned where tensors come from an accelerator. A second copy overwrites the first.
    """

    def __init__(self) -> None:
        self._buffers: list[tuple[Tensor, bool]] = []
        """Each with whether it is pinned; to ask it itself would wake the driver of an accelerator."""
        self._next = 0
        self.shards = ShardBuffer()

    def copy(self, tree: Any) -> Any:
        """The tree as it is at this moment, also if it is being computed on an accelerator."""
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
            return {key: self._copied(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copied(each) for each in value)
        return value

    def _buffer(self, like: Tensor) -> Tensor:
        """The next buffer, of the shape, type and strides of ``like``; that of the last copy where it suits."""
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
    """Whether ``tensor`` can be copied into ``buffer`` with all that a file keeps of it."""
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
    """Bytes of all tensors of a tree, of sharded ones those of the whole."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(tree))


def without_shards(tree: Any, wholes: Iterator[Tensor]) -> Any:
    """``tree`` with the next of ``wholes`` in the place of each ``ShardCopy``."""
    if isinstance(tree, ShardCopy):
        return next(wholes)
    if isinstance(tree, dict):
        return {key: without_shards(value, wholes) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(without_shards(value, wholes) for value in tree)
    return tree
