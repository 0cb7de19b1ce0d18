"""Buckets of parameters that an optimizer updates together, with their gradients and state.

A bucket persists between steps, since gathering three hundred small tensors takes longer than updating them; whatever
may have moved in memory is looked up again. Each parameter is one layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from hpcbench.optim.checks import check_parameter
from hpcbench.optim.tensors import flattened, gradient, lay_out, local, norm_dtype, squared_norms, summed_over_shards

PIECE = 1 << 17
"""Elements that a CPU works on at a time, so that weights, moments, gradient and update stay in its cache."""


class Bucket:
    """Parameters of one group, device, type and sharding, and the parts of them on this rank."""

    def __init__(
        self,
        group: dict[str, Any],
        parameters: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        moments: Sequence[str],
    ) -> None:
        self.group, self.parameters, self.states = group, list(parameters), list(states)
        self.names = tuple(moments)
        self.weights: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.moments: list[list[Tensor]] = []
        """For each kind of moment (``exp_avg``, ...), one tensor per parameter."""
        self.elements = sum(local(parameter).numel() for parameter in self.parameters)
        """Elements of all weights on this rank."""
        self.pointers: list[int] = []
        """Addresses of weights and moments."""
        self.found_inf: Tensor | None = None
        """On the device; above 0 if the step must change nothing. ``None`` if that cannot happen."""
        self.divisor: Tensor | None = None
        """On the device; what the gradients must still be divided by. ``None`` if no division is pending."""
        self.kept: dict[str, Any] = {}
        """What implementations keep between steps; emptied when weights or moments have moved."""

    def prepare(self, name: str, found_inf: Tensor | None) -> None:
        """Collect the gradients for a new step of optimizer ``name``."""
        pointers = self.find()
        if pointers != self.pointers:
            for parameter, state in zip(self.parameters, self.states, strict=True):
                check_parameter(name, parameter)
                lay_out(parameter, state, self.names)
            self.pointers, self.kept = self.find(), {}
        self.gradients = [gradient(name, parameter) for parameter in self.parameters]
        self.found_inf = None if found_inf is None else found_inf.to(self.weights[0].device)
        self.divisor = None

    def find(self) -> list[int]:
        """Look up weights and moments; returns their addresses."""
        self.weights = [local(parameter) for parameter in self.parameters]
        self.moments = [[local(state[key]) for state in self.states] for key in self.names]
        return [tensor.data_ptr() for tensors in (self.weights, *self.moments) for tensor in tensors]

    @property
    def on_host(self) -> bool:
        """Whether a CPU does the work, with no ``found_inf`` to check."""
        return self.weights[0].device.type == "cpu" and self.found_inf is None

    def pieces(self) -> list[list[tuple[int, int, int]]]:
        """(Layer, start, stop) of all weights, in order, in pieces of at most ``PIECE`` elements."""
        if "pieces" not in self.kept:
            self.kept["pieces"] = list(pieces([weight.numel() for weight in self.weights]))
        layer_pieces: list[list[tuple[int, int, int]]] = self.kept["pieces"]
        return layer_pieces

    def release(self) -> None:
        """Drop the gradients, so that the caller can free their memory between steps."""
        self.gradients, self.divisor = [], None

    def cut(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """Flat views of ``tensors``, one per layer, for each of ``pieces``."""
        flat = [flattened(tensor) for tensor in tensors]
        return [[flat[layer][start:stop] for layer, start, stop in piece] for piece in self.pieces()]

    def cut_weights(self) -> list[list[Tensor]]:
        """``cut`` of the weights, cached until something moves."""
        if "weights" not in self.kept:
            self.kept["weights"] = self.cut(self.weights)
        views: list[list[Tensor]] = self.kept["weights"]
        return views

    def cut_moments(self) -> list[list[list[Tensor]]]:
        """``cut`` of each kind of moment, cached until something moves."""
        if "moments" not in self.kept:
            self.kept["moments"] = [self.cut(moment) for moment in self.moments]
        views: list[list[list[Tensor]]] = self.kept["moments"]
        return views

    def cut_room(self, room: Tensor) -> list[list[Tensor]]:
        """Views of ``room``, a vector of at least ``elements``, with the sizes and order of ``cut_weights``."""
        if self.kept.get("room pointer") != room.data_ptr():
            sizes = [[stop - start for _, start, stop in piece] for piece in self.pieces()]
            parts = torch.split(room[: self.elements], [sum(piece) for piece in sizes])
            self.kept["room"] = [list(torch.split(part, piece)) for part, piece in zip(parts, sizes, strict=True)]
            self.kept["room pointer"] = room.data_ptr()
        views: list[list[Tensor]] = self.kept["room"]
        return views

    def squared_norms(self, *parts: Sequence[Tensor]) -> Tensor:
        """Sums of squares of the tensors on this rank, (parts, parameters)."""
        return torch.stack([squared_norms(tensors) for tensors in parts])

    def norms(self, squares: Tensor) -> Iterator[Tensor]:
        """Norms of whole tensors, one kind after another, from this rank's sums of squares, (kinds, parameters)."""
        return iter(summed_over_shards(squares, self.parameters[0]).sqrt_().unbind())

    def ones(self) -> Tensor:
        """A one for each parameter, on the device."""
        return torch.ones(len(self.weights), dtype=norm_dtype(self.weights[0]), device=self.weights[0].device)


def pieces(sizes: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
    """Cut tensors of these sizes into pieces of at most ``PIECE`` elements, as lists of (tensor, start, stop).

    A tensor that fits into a piece is not cut. Empty tensors are left out.
    """
    piece: list[tuple[int, int, int]] = []
    room = PIECE
    for layer, size in enumerate(sizes):
        if piece and size > room:
            yield piece
            piece, room = [], PIECE
        for start in range(0, size, PIECE):
            stop = min(start + PIECE, size)
            if stop - start > room:
                yield piece
                piece, room = [], PIECE
            piece.append((layer, start, stop))
            room -= stop - start
    if piece:
        yield piece
