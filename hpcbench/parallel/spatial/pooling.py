"""Pooling, global means and resizing of samples that are split over ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.pooling import _AvgPoolNd, _MaxPoolNd

from hpcbench.parallel.peers import Peers
from hpcbench.parallel.spatial.convolution import Axes, check_part
from hpcbench.parallel.spatial.exchange import Widening
from hpcbench.parallel.spatial.extents import Extent, Plan, Window, cut
from staging.errors import InputError

MAX_POOLS: dict[int, Callable[..., Tensor]] = {
    3: functional.max_pool1d,
    4: functional.max_pool2d,
    5: functional.max_pool3d,
}
AVERAGE_POOLS: dict[int, Callable[..., Tensor]] = {
    3: functional.avg_pool1d,
    4: functional.avg_pool2d,
    5: functional.avg_pool3d,
}
SIXTEEN_BIT = (torch.bfloat16, torch.float16)


def average_pool(x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]) -> Tensor:
    """Average pooling in as many dimensions as ``x`` (batch, channels, ...) has.

    On a CPU torch cannot pool cubes of 16-bit numbers; these are then averaged in float32, and rounded.
    """
    if x.dim() == 5 and x.device.type == "cpu" and x.dtype in SIXTEEN_BIT:
        return functional.avg_pool3d(x.float(), kernel, stride, padding).to(x.dtype)
    return AVERAGE_POOLS[x.dim()](x, kernel, stride, padding)


class Widen(torch.autograd.Function):
    """Fetches what a rank needs, padded with ``fill``; gradients go back to the owners and are added there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, widening: Widening, fill: float) -> Tensor:
        ctx.widening = widening
        wide = widening.join(x, widening.fetch(x), fill)
        return wide.view_as(wide) if wide is x else wide

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # The sum is made in place, and others may use the gradient, too.
        return ctx.widening.start_back(gradient.clone())(), None, None


def widen(x: Tensor, widening: Widening, fill: float = 0.0) -> Tensor:
    """``x`` (..., have, ...) with what its rank needs: (..., need, ...)."""
    if widening.plan.local:
        return x
    wide: Tensor = Widen.apply(x, widening, fill)  # type: ignore[no-untyped-call]
    return wide


class SplitPool(nn.Module):
    """A maximum or average pooling whose input, of ``sizes`` as a whole, is split along ``axes``."""

    def __init__(self, layer: _MaxPoolNd | _AvgPoolNd, sizes: Sequence[int], axes: Axes) -> None:
        super().__init__()
        if layer.ceil_mode:
            raise InputError("a split pooling has no ceil_mode; pad the input, or choose sizes that divide")
        if getattr(layer, "return_indices", False) or getattr(layer, "divisor_override", None):
            raise InputError("a split pooling gives no indices and has no divisor_override")
        self.sizes, self.axes = tuple(sizes), axes
        dims = len(sizes)
        self.kernel = spread(layer.kernel_size, dims)
        self.stride = spread(layer.stride if layer.stride is not None else layer.kernel_size, dims)
        self.dilation = spread(getattr(layer, "dilation", 1), dims)
        self.padding = spread(layer.padding, dims)
        self.average = isinstance(layer, _AvgPoolNd)
        self.all_count = bool(getattr(layer, "count_include_pad", True))
        self.windows = [
            Window(*arguments)
            for arguments in zip(self.kernel, self.stride, self.dilation, self.padding, self.padding, strict=True)
        ]
        self.widenings = [
            Widening(dim, axis, Plan.of(self.sizes[dim - 2], axis.size, self.windows[dim - 2]))
            for dim, axis in axes.items()
        ]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ..., part, ...) to the part of the output."""
        check_part(x, self.sizes, self.axes)
        for widening in self.widenings:
            x = widen(x, widening, 0.0 if self.average else -math.inf)
        padding = tuple(0 if dim in self.axes else pad for dim, pad in enumerate(self.padding, 2))
        if not self.average:
            return MAX_POOLS[x.dim()](x, self.kernel, self.stride, padding, self.dilation)
        y = average_pool(x, self.kernel, self.stride, padding)
        return y if self.all_count else y * self.correction(y)

    def correction(self, y: Tensor) -> Tensor:
        """Elements of a window divided by those that are not padding, for each output of this rank."""
        factor = y.new_ones(())
        for dim, (size, window) in enumerate(zip(self.sizes, self.windows, strict=True), 2):
            axis = self.axes.get(dim)
            outputs = Extent(0, window.outputs(size))
            own_outputs = outputs if axis is None else cut(outputs.stop, axis.size)[axis.rank]
            inside = [window.needs(Extent(o, o + 1)).common(Extent(0, size)).length for o in range(*own_outputs)]
            shape = [1] * y.dim()
            shape[dim] = -1
            factor = factor * (window.kernel / y.new_tensor(inside)).view(shape)
        return factor


class SplitGlobalMean(nn.Module):
    """The mean over all places of the whole sample, the same on all ranks: (batch, channels, 1, ...)."""

    def __init__(self, sizes: Sequence[int], axes: Axes) -> None:
        super().__init__()
        self.sizes, self.axes = tuple(sizes), axes

    def forward(self, x: Tensor) -> Tensor:
        """All ranks compute what follows alike, each for its own part of the rest of the model."""
        check_part(x, self.sizes, self.axes)
        total = x.sum(dim=tuple(range(2, x.dim())), keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
        mean: Tensor = _Sum.apply(total, tuple(self.axes.values())) / math.prod(self.sizes)  # type: ignore[no-untyped-call]
        return mean.to(x.dtype)


class _Sum(torch.autograd.Function):
    """The sum over axes; its gradient is the sum of the gradients from the ranks' parts of the model."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: tuple[Peers, ...]) -> Tensor:
        ctx.axes = axes
        total = x.contiguous().clone()
        for axis in axes:
            axis.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        total = gradient.contiguous().clone()
        for axis in ctx.axes:
            axis.all_reduce(total)
        return total, None


class Gather(nn.Module):
    """The whole sample on all ranks, from their parts; each of them computes what follows, on equal numbers.

    The loss must be divided by the number of ranks that share a sample, so that the gradients of both the layers that
    follow and the split ones are added over all ranks. The backward pass takes this rank's slice, times that number, of
    what would otherwise be the same sum on all ranks.
    """

    def __init__(self, sizes: Sequence[int], axes: Axes) -> None:
        super().__init__()
        self.sizes, self.axes = tuple(sizes), axes
        self.widenings = [Widening(dim, axis, Plan.gathering(sizes[dim - 2], axis.size)) for dim, axis in axes.items()]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ..., part, ...) to (batch, channels, *sizes)."""
        check_part(x, self.sizes, self.axes)
        whole: Tensor = _Gather.apply(x, self.widenings)  # type: ignore[no-untyped-call]
        return whole


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, widenings: list[Widening]) -> Tensor:
        ctx.widenings = widenings
        for widening in widenings:
            x = widening.join(x, widening.fetch(x))
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        for widening in ctx.widenings:
            have = widening.have
            gradient = gradient.narrow(widening.dim, have.start, have.length)
        return gradient * math.prod(widening.axis.size for widening in ctx.widenings), None


def spread(value: Any, dims: int) -> tuple[int, ...]:
    """Expand one number for all dimensions, or one for each, to one for each."""
    return (value,) * dims if isinstance(value, int) else tuple(value)
