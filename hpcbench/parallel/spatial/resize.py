"""Interpolation of samples that are split over ranks, as ``torch.nn.Upsample`` does it, one dimension after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

import torch
from torch import Tensor, nn

from hpcbench.parallel.spatial.convolution import Axes, check_part
from hpcbench.parallel.spatial.exchange import Widening
from hpcbench.parallel.spatial.extents import Extent, Plan, cut
from hpcbench.parallel.spatial.pooling import widen
from staging.errors import InputError

MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear"}


@dataclass(frozen=True)
class Resampling:
    """One dimension of ``size`` brought to ``target``: each output is of one input, or of two with weights."""

    size: int
    target: int
    scale: float
    """Inputs per output."""
    mode: str
    align_corners: bool

    def outputs(self, size: int) -> int:
        """As of ``Reach``."""
        assert size == self.size
        return self.target

    def source(self, output: int) -> tuple[int, int, float]:
        """The two inputs of an output, and the weight of the second."""
        if self.mode == "nearest":
            place = min(floor(output * self.scale), self.size - 1)
            return place, place, 0.0
        at = output * self.scale if self.align_corners else max((output + 0.5) * self.scale - 0.5, 0.0)
        low = min(floor(at), self.size - 1)
        return low, min(low + 1, self.size - 1), at - low

    def needs(self, outputs: Extent) -> Extent:
        """As of ``Reach``."""
        return Extent(self.source(outputs.start)[0], self.source(outputs.stop - 1)[1] + 1)


class SplitUpsample(nn.Module):
    """``nn.Upsample`` (nearest or linear) of an input, of ``sizes`` as a whole, that is split along ``axes``."""

    def __init__(self, layer: nn.Upsample, sizes: Sequence[int], axes: Axes) -> None:
        super().__init__()
        if layer.mode not in MODES:
            raise InputError(f"a split Upsample has no mode {layer.mode!r}; take one of {', '.join(MODES)}")
        self.sizes, self.axes = tuple(sizes), axes
        self.ways = [resampling(layer, size, place, len(sizes)) for place, size in enumerate(sizes)]
        self.widenings = {
            dim: Widening(dim, axis, Plan.of(sizes[dim - 2], axis.size, self.ways[dim - 2]))
            for dim, axis in axes.items()
        }

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ..., part, ...) to the part of the output."""
        check_part(x, self.sizes, self.axes)
        for dim, way in enumerate(self.ways, 2):
            outputs, first = Extent(0, way.target), 0
            if dim in self.axes:
                axis, widening = self.axes[dim], self.widenings[dim]
                outputs, first = cut(way.target, axis.size)[axis.rank], widening.need.start
                x = widen(x, widening)
            low, high, weight = zip(*(way.source(output) for output in range(*outputs)), strict=True)
            below = x.index_select(dim, torch.tensor(low, device=x.device) - first)
            if way.mode == "nearest":
                x = below
                continue
            above = x.index_select(dim, torch.tensor(high, device=x.device) - first)
            shape = [1] * x.dim()
            shape[dim] = -1
            x = torch.lerp(below, above, below.new_tensor(weight).view(shape))
        return x


def resampling(layer: nn.Upsample, size: int, place: int, dims: int) -> Resampling:
    """How one dimension is resized, with torch's rules for the scale."""
    mode, align = MODES[layer.mode], bool(layer.align_corners)
    if layer.size is not None:
        target, scale = (layer.size if isinstance(layer.size, int) else layer.size[place]), None
    else:
        assert layer.scale_factor is not None
        factor = layer.scale_factor if isinstance(layer.scale_factor, float) else layer.scale_factor[place]
        target, scale = floor(size * factor), None if layer.recompute_scale_factor else 1 / factor
    if align and mode == "linear":
        return Resampling(size, target, (size - 1) / (target - 1) if target > 1 else 0.0, mode, align)
    return Resampling(size, target, scale if scale is not None else size / target, mode, align)
