"""Exchanges parts of a tensor between the ranks along one axis of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hpcbench.parallel.peers import Peers
from hpcbench.parallel.spatial.extents import Extent, Plan


class Widening:
    """Brings each rank what a ``plan`` says that it needs of dimension ``dim``, and gradients back to the owners."""

    def __init__(self, dim: int, axis: Peers, plan: Plan) -> None:
        self.dim, self.axis, self.plan = dim, axis, plan
        self.have, self.need = plan.have[axis.rank], plan.need[axis.rank]
        self.sends, self.receives = plan.sends(axis.rank), plan.receives(axis.rank)
        inside = self.need.common(Extent(0, plan.size))
        self.kept = self.need.common(self.have)
        before = min(inside.start - self.need.start, self.need.length)
        self.padding = (before, max(0, min(self.need.stop - inside.stop, self.need.length - before)))
        """Places of padding before and after."""

    def fetch(self, x: Tensor) -> list[Tensor]:
        """What this rank lacks of ``x``, (..., part, ...), from the ranks that have it, in the order of its places."""
        pieces = [_packed(x, self.dim, extent.moved(-self.have.start)) for _, extent in self.sends]
        room = [_room(x, self.dim, extent.length) for _, extent in self.receives]
        self.axis.start(
            [(other, piece) for (other, _), piece in zip(self.sends, pieces, strict=True)],
            [(other, piece) for (other, _), piece in zip(self.receives, room, strict=True)],
        )()
        return room

    def join(self, x: Tensor, fetched: Sequence[Tensor], fill: float = 0.0) -> Tensor:
        """``x`` (..., have, ...) joined with what was fetched, and ``fill`` as padding: (..., need, ...)."""
        if self.need == self.have:
            return x
        wide = _empty_like(x, self.dim, self.need.length)
        low, high = self.padding
        for extent in (Extent(0, low), Extent(self.need.length - high, self.need.length)):
            if extent.length:
                _part(wide, self.dim, extent).fill_(fill)
        if self.kept.length:
            own = _part(x, self.dim, self.kept.moved(-self.have.start))
            _part(wide, self.dim, self.kept.moved(-self.need.start)).copy_(own)
        for (_, extent), piece in zip(self.receives, fetched, strict=True):
            _part(wide, self.dim, extent.moved(-self.need.start)).copy_(piece.movedim(-1, 1))
        return wide

    def start_back(self, wide: Tensor) -> Callable[[], Tensor]:
        """Start to send gradients (..., need, ...) to the owners; the result waits, and returns (..., have, ...)."""
        if self.plan.local:
            return lambda: wide
        pieces = [_packed(wide, self.dim, extent.moved(-self.need.start)) for _, extent in self.receives]
        room = [_room(wide, self.dim, extent.length) for _, extent in self.sends]
        wait = self.axis.start(
            [(other, piece) for (other, _), piece in zip(self.receives, pieces, strict=True)],
            [(other, piece) for (other, _), piece in zip(self.sends, room, strict=True)],
        )

        def finish() -> Tensor:
            if self.kept == self.have:  # then the rest of ``wide`` was only fetched
                own = _part(wide, self.dim, self.kept.moved(-self.need.start))
            else:
                own = _empty_like(wide, self.dim, self.have.length).zero_()
                if self.kept.length:
                    mine = _part(wide, self.dim, self.kept.moved(-self.need.start))
                    _part(own, self.dim, self.kept.moved(-self.have.start)).copy_(mine)
            wait()
            for (_, extent), piece in zip(self.sends, room, strict=True):
                _part(own, self.dim, extent.moved(-self.have.start)).add_(piece.movedim(-1, 1))
            return own

        return finish


def _part(tensor: Tensor, dim: int, extent: Extent) -> Tensor:
    return tensor.narrow(dim, extent.start, extent.length)


def _packed(tensor: Tensor, dim: int, extent: Extent) -> Tensor:
    """A part as it is sent: channels last, whatever the layout, so that both sides use the same order."""
    return _part(tensor, dim, extent).movedim(1, -1).contiguous()


def _room(like: Tensor, dim: int, length: int) -> Tensor:
    shape = list(like.shape)
    shape[dim] = length
    batch, channels, *sizes = shape
    return like.new_empty((batch, *sizes, channels))


def _empty_like(like: Tensor, dim: int, length: int) -> Tensor:
    """An empty tensor of another length, in the same memory layout."""
    shape = list(like.shape)
    shape[dim] = length
    for layout, dims in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if like.dim() == dims and like.is_contiguous(memory_format=layout) and not like.is_contiguous():
            return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)
    return like.new_empty(shape)
