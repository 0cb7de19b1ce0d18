"""Interpolation of samples that are split over ranks, as ``torch.nn.Upsample`` does it, one dimension after another.

The inputs that an output depends on, and their weights, are read off torch's own result for inputs that are one in a
single place. So every mode, factor and size is split as this torch computes it on a CPU, with its rules for the scale
and its rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from hpcbench.parallel.spatial.convolution import Axes, check_part
from hpcbench.parallel.spatial.exchange import Widening
from hpcbench.parallel.spatial.extents import Extent, Plan, cut
from hpcbench.parallel.spatial.pooling import widen
from staging.errors import InputError

AT_ONCE = 64
"""Inputs that are tried in one call."""
BESIDE = 3
"""Places of the other dimension, beside the one that is tried."""

APART = 1e-10
"""Largest rounding difference between weights of a result and of its gradient, in float64, per place."""


@dataclass(frozen=True)
class Taps:
    """For one dimension: the inputs that each output depends on, and their weights."""

    indices: Tensor
    """(taps, outputs), int64."""
    weights: Tensor
    """(taps, outputs)."""

    @property
    def selects(self) -> bool:
        """Whether every output is one input."""
        return len(self.weights) == 1 and bool((self.weights == 1).all())

    def of_outputs(self, outputs: Extent, first: int) -> Taps:
        """The taps of some outputs, with indices counted from ``first``."""
        span = slice(outputs.start, outputs.stop)
        return Taps(self.indices[:, span] - first, self.weights[:, span])

    def to(self, device: torch.device) -> Taps:
        """The taps on a device."""
        return Taps(self.indices.to(device), self.weights.to(device))

    def of(self, x: Tensor, dim: int) -> Tensor:
        """Map (..., inputs, ...) to (..., outputs, ...)."""
        if self.selects:
            return x.index_select(dim, self.indices[0])
        shape = [1] * x.dim()
        shape[dim] = -1
        y = x.index_select(dim, self.indices[0]) * self.weights[0].view(shape)
        for index, weight in zip(self.indices[1:], self.weights[1:], strict=True):
            y = torch.addcmul(y, x.index_select(dim, index), weight.view(shape))
        return y


@dataclass(frozen=True)
class Resampling:
    """One dimension of ``size`` resized to ``target``, in float32 (also for narrower types) and in float64."""

    size: int
    target: int
    single: Taps
    double: Taps

    @property
    def unchanged(self) -> bool:
        """Whether every output is the input at its place."""
        indices = torch.arange(self.target)
        return self.size == self.target and all(
            dim_taps.selects and torch.equal(dim_taps.indices[0], indices) for dim_taps in (self.single, self.double)
        )

    def outputs(self, size: int) -> int:
        """As in ``Reach``."""
        assert size == self.size
        return self.target

    def needs(self, outputs: Extent) -> Extent:
        """As in ``Reach``; what either type needs."""
        indices = torch.cat(
            [dim_taps.of_outputs(outputs, 0).indices.flatten() for dim_taps in (self.single, self.double)]
        )
        return Extent(int(indices.min()), int(indices.max()) + 1)


class SplitUpsample(nn.Module):
    """``nn.Upsample``, in any mode, of an input that has ``sizes`` as a whole and is split along ``axes``."""

    def __init__(self, layer: nn.Upsample, sizes: Sequence[int], axes: Axes) -> None:
        super().__init__()
        self.mode, self.sizes, self.axes = layer.mode, tuple(sizes), axes
        self.ways = resamplings(layer, sizes)
        self.widenings = {
            dim: Widening(dim, axis, Plan.of(sizes[dim - 2], axis.size, self.ways[dim - 2]))
            for dim, axis in axes.items()
        }
        self.tables: dict[tuple[torch.device, bool], dict[int, Taps]] = {}
        """Taps of each dimension that changes, by device and whether in float64."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ..., part, ...) to the part of the output."""
        check_part(x, self.sizes, self.axes)
        for widening in self.widenings.values():
            x = widen(x, widening)
        y = x
        for dim, dim_taps in self.table(x.device, double=x.dtype == torch.float64).items():
            # As in torch, weights and sums are in float32 even if the activations are narrower.
            y = dim_taps.of(y if dim_taps.selects else y.to(torch.promote_types(x.dtype, torch.float32)), dim)
        return y.to(self.result_type(x))

    def result_type(self, x: Tensor) -> torch.dtype:
        """The type of torch's result for ``x``: autocast decides, and differs between modes."""
        few = x.new_zeros((1, 1, *[1] * len(self.sizes)))
        return functional.interpolate(few, [1] * len(self.sizes), mode=self.mode).dtype

    def table(self, device: torch.device, *, double: bool) -> dict[int, Taps]:
        """The taps of this rank's outputs, on a device, with indices counted from the start of its widened input."""
        if (device, double) not in self.tables:
            taps_by_dim = {}
            for dim, way in enumerate(self.ways, 2):
                outputs, first = Extent(0, way.target), 0
                if dim in self.axes:
                    axis, first = self.axes[dim], self.widenings[dim].need.start
                    outputs = cut(way.target, axis.size)[axis.rank]
                if not way.unchanged:
                    taps_by_dim[dim] = (way.double if double else way.single).of_outputs(outputs, first).to(device)
            self.tables[device, double] = taps_by_dim
        return self.tables[device, double]


def resamplings(layer: nn.Upsample, sizes: Sequence[int]) -> list[Resampling]:
    """How each dimension of an input of ``sizes`` is resized.

    Raises ``InputError`` if torch's gradient is for other inputs than its result uses.
    """
    ways = [resampling(layer, size, place, len(sizes)) for place, size in enumerate(sizes)]
    stays = all(way.size == way.target for way in ways)
    if layer.mode == "bicubic" and stays and not all(way.unchanged for way in ways):
        raise InputError(torn(layer.mode, layer.scale_factor, "every size to itself"))
    return ways


def torn(mode: str, factor: object, what: str) -> str:
    """The reason why a factor is refused."""
    return (
        f"of mode {mode!r} with the factor {factor}, which brings {what}, torch takes the result and its gradient "
        "from different inputs; give Upsample the size, or recompute_scale_factor True"
    )


def resampling(layer: nn.Upsample, size: int, place: int, dims: int) -> Resampling:
    """How dimension ``place`` of ``dims`` is resized."""
    size_wanted, factor = layer.size, layer.scale_factor
    line = Line(
        layer.mode,
        size_wanted[place] if isinstance(size_wanted, tuple | list) else size_wanted,
        factor[place] if isinstance(factor, tuple | list) else factor,
        layer.align_corners,
        layer.recompute_scale_factor,
    )
    single, double = (taps(line, size, dtype) for dtype in (torch.float32, torch.float64))
    return Resampling(size, single.indices.shape[1], single, double)


@dataclass(frozen=True)
class Line:
    """What ``nn.Upsample`` does to one dimension, by torch itself; arguments as in ``functional.interpolate``."""

    mode: str
    size: int | None
    factor: float | None
    align_corners: bool | None
    recompute: bool | None

    def __call__(self, lines: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        inputs = lines[:, None]
        size = None if self.size is None else [self.size]
        factor = None if self.factor is None else [self.factor]
        if self.mode == "bicubic":  # torch has it only for two dimensions; the other one becomes its middle or end
            inputs = inputs[..., None].expand(-1, -1, -1, BESIDE)
            size = size and [*size, 1]
            factor = factor and [*factor, 1 / BESIDE]
        mode = "linear" if self.mode.endswith("linear") else self.mode
        outputs: Tensor = functional.interpolate(
            inputs, size, factor, mode, self.align_corners, recompute_scale_factor=self.recompute
        )
        return outputs.flatten(1)


def taps(line: Line, size: int, dtype: torch.dtype) -> Taps:
    """The taps of a dimension of ``size``, read off torch's result for inputs that are one at a single index.

    Raises ``InputError`` if torch's gradient is for other inputs than its result uses: then the result also uses
    other inputs for other memory layouts, so that there is no reference to match.
    """
    weights = torch.cat([line(batch) for batch in ones(size, dtype)])  # (inputs, outputs)
    outputs = weights.shape[1]
    back = torch.cat([gradient(line, batch, size) for batch in ones(outputs, dtype)])
    if dtype == torch.float64 and (weights - back.T).abs().max() > APART * size:
        raise InputError(torn(line.mode, line.factor, f"size {size} to {outputs}"))
    numbers = torch.arange(size)[:, None]
    first = torch.where(weights != 0, numbers, size).amin(0)
    last = torch.where(weights != 0, numbers, 0).amax(0)
    indices = first + torch.arange(int((last - first).max()) + 1)[:, None]
    inside, indices = indices <= last, indices.minimum(last)
    return Taps(indices, torch.where(inside, weights.gather(0, indices), 0))


def ones(size: int, dtype: torch.dtype) -> Iterator[Tensor]:
    """Yield the rows of an identity matrix, some at a time."""
    for start in range(0, size, AT_ONCE):
        rows = torch.zeros(min(AT_ONCE, size - start), size, dtype=dtype, device="cpu")
        rows.diagonal(start).fill_(1)
        yield rows


def gradient(line: Line, outputs: Tensor, size: int) -> Tensor:
    """The gradients of the inputs, (batch, inputs), for gradients of the outputs, (batch, outputs)."""
    with torch.enable_grad():
        inputs = torch.zeros(len(outputs), size, dtype=outputs.dtype, device="cpu", requires_grad=True)
        (gradients,) = torch.autograd.grad(line(inputs), inputs, outputs)
    return gradients
