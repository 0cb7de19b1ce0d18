"""Convolutions, including transposed ones, of samples that are split over ranks.

The halo is fetched before the convolution, which then pads nothing in the dimensions that are split. In the backward
pass the halo's gradients are sent back to where it came from while the kernel's gradient is computed. For that pass the
input and its halo are kept, not a copy of both together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from hpcbench.parallel.padded_convolution import PaddedConv3d, pad, without, zeros_beside
from hpcbench.parallel.peers import Peers
from hpcbench.parallel.spatial.exchange import Widening
from hpcbench.parallel.spatial.extents import Extent, Plan, TransposedWindow, Trimmed, Window, cut
from staging.errors import InputError

Axes = dict[int, Peers]
"""Dimensions of a tensor (batch, channels, ...) that are split, and the ranks that each is split over."""


@dataclass(frozen=True)
class Geometry:
    """What is fetched, and the arguments of torch's convolution that follows."""

    widenings: tuple[Widening, ...]
    crops: tuple[tuple[int, Extent], ...]
    """For a transposed convolution: dimension, and the part of the result that belongs to this rank."""
    taps: tuple[tuple[int, Extent], ...]
    """Dimension of the kernel, and the part of it that meets more than padding here."""
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @property
    def local(self) -> bool:
        """Whether every rank has what it needs, as for kernels of size 1."""
        return not self.crops and all(widening.plan.local for widening in self.widenings)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The last arguments of torch's convolution and of its backward pass."""
        return self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups


class SplitConvolution(nn.Module):
    """A convolution whose input, of ``sizes`` as a whole, is split along ``axes``; uses the layer's own parameters.

    ``padding`` gives the places before and after in each split dimension, where they differ from the layer's. Raises
    ``InputError`` for a layer that does not pad with zeros, or whose padding is not given in numbers.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, layer: _ConvNd, sizes: Sequence[int], axes: Axes, padding: dict[int, tuple[int, int]] | None = None
    ) -> None:
        super().__init__()
        if layer.padding_mode != "zeros":
            raise InputError(f"a split convolution pads with zeros, not by padding_mode {layer.padding_mode!r}")
        if isinstance(layer.padding, str):
            raise InputError(f"a split convolution needs its padding in numbers, not {layer.padding!r}")
        self._parameters = layer._parameters
        self.training = layer.training
        self.sizes, self.axes = tuple(sizes), axes
        self.geometry = geometry(layer, sizes, axes, padding or {})
        self.zeros: tuple[int, ...] = ()
        """Zeros on each side of a short input, in dimensions that are not split."""
        if isinstance(layer, PaddedConv3d):
            short = zeros_beside(layer, sizes)
            self.zeros = tuple(0 if place + 2 in axes else count for place, count in enumerate(short))
            self.geometry = replace(self.geometry, padding=without(self.geometry.padding, self.zeros))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in, ..., part, ...) to (batch, out, ..., part of the output, ...)."""
        check_part(x, self.sizes, self.axes)
        x = pad(x, self.zeros) if any(self.zeros) else x
        weight, bias = self.met_weight(), self.bias
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        if self.geometry.local:
            return torch.convolution(x, weight, bias, *self.geometry.arguments)
        convolve: Callable[..., Tensor] = _Convolve.apply
        return convolve(x, weight, bias, self.geometry)

    def met_weight(self) -> Tensor:
        """The part of the kernel that meets more than padding on this rank."""
        weight = self.weight
        for dim, span in self.geometry.taps:
            weight = weight.narrow(dim, span.start, span.length)
        return weight


def geometry(layer: _ConvNd, sizes: Sequence[int], axes: Axes, padding: dict[int, tuple[int, int]]) -> Geometry:
    """The plan of every split dimension."""
    widenings, crops, taps = [], [], []
    left = [int(width) for width in layer.padding]
    more = [int(width) for width in layer.output_padding]
    for dim, axis in axes.items():
        place = dim - 2
        kernel, stride, dilation = layer.kernel_size[place], layer.stride[place], layer.dilation[place]
        size, both = sizes[place], padding.get(dim, (left[place], left[place]))
        reach: Trimmed | TransposedWindow
        if isinstance(layer, _ConvTransposeNd):
            reach = TransposedWindow(kernel, stride, dilation, left[place], more[place])
        else:
            reach = Trimmed(Window(kernel, stride, dilation, *both), size)
        plan = Plan.of(size, axis.size, reach)
        widenings.append(Widening(dim, axis, plan))
        own_outputs = cut(reach.outputs(size), axis.size)[axis.rank]
        if isinstance(reach, TransposedWindow):
            crops.append((dim, own_outputs.moved(-reach.begins(plan.need[axis.rank].start))))
        elif (used := reach.taps(own_outputs)) != Extent(0, kernel):
            taps.append((dim, used))
        left[place] = more[place] = 0
    return Geometry(
        tuple(widenings), tuple(crops), tuple(taps), tuple(layer.stride), tuple(left), tuple(layer.dilation),
        isinstance(layer, _ConvTransposeNd), tuple(more), layer.groups,
    )  # fmt: skip


class _Convolve(torch.autograd.Function):
    """torch's convolution of an input that is first widened."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, how: Geometry) -> Tensor:
        wide, fetched = x, []
        for widening in how.widenings:
            pieces = widening.fetch(wide)
            wide = widening.join(wide, pieces)
            fetched += pieces
        ctx.save_for_backward(x, weight, *fetched)
        ctx.how, ctx.with_bias = how, bias is not None
        y = torch.convolution(wide, weight, bias, *how.arguments)
        for dim, span in how.crops:
            y = y.narrow(dim, span.start, span.length)
        return y.clone() if how.crops else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *fetched = ctx.saved_tensors
        how: Geometry = ctx.how
        wide = x
        for widening in how.widenings:
            count = len(widening.receives)
            wide, fetched = widening.join(wide, fetched[:count]), fetched[count:]
        gradient = uncropped(gradient, wide, weight, how)
        biases = [weight.shape[1] * how.groups if how.transposed else weight.shape[0]] if ctx.with_bias else None

        def backward(mask: list[bool]) -> tuple[Tensor | None, ...]:
            gradients: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
                gradient, wide, weight, biases, *how.arguments, mask
            )
            return gradients

        finish = None
        if ctx.needs_input_grad[0]:
            (along, _, _) = backward([True, False, False])
            assert along is not None
            finish = how.widenings[-1].start_back(along)
        _, of_weight, of_bias = backward([False, ctx.needs_input_grad[1], ctx.with_bias])
        if finish is None:
            return None, of_weight, of_bias, None
        along = finish()
        for widening in how.widenings[-2::-1]:
            along = widening.start_back(along)()
        return along, of_weight, of_bias, None


def uncropped(gradient: Tensor, wide: Tensor, weight: Tensor, how: Geometry) -> Tensor:
    """The gradient of the result of a transposed convolution before cropping."""
    for dim, span in how.crops:
        place = dim - 2
        reach = (weight.shape[dim] - 1) * how.dilation[place]
        length = (wide.shape[dim] - 1) * how.stride[place] + reach + 1
        shape = list(gradient.shape)
        shape[dim] = length
        full = gradient.new_zeros(shape)
        full.narrow(dim, span.start, span.length).copy_(gradient)
        gradient = full
    return gradient


def check_part(x: Tensor, sizes: Sequence[int], axes: Axes) -> None:
    """Assert that ``x`` is this rank's part of a tensor of ``sizes``."""
    for dim, axis in axes.items():
        expected = cut(sizes[dim - 2], axis.size)[axis.rank].length
        assert x.shape[dim] == expected, f"dimension {dim} is {x.shape[dim]}, this rank's part has {expected}"
