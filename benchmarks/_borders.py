"""What it would cost to compute borders separately, so that halos travel while the interior of a part is computed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from _common import seconds
from _split import laid_out
from torch import Tensor, nn

from hpcbench.parallel.spatial.convolution import SplitConvolution

REPEATS = 5


@torch.no_grad()
def borders_apart(model: nn.Module, forward: Callable[[nn.Module], Tensor]) -> dict[str, float]:
    """Time all convolutions with halos in a forward pass of this rank, in one piece and in two or three.

    ``model`` is split in the first dimension; the pass itself exchanges halos, the timing does not.
    """
    sums = {"one_piece_s": 0.0, "pieces_s": 0.0}
    met: list[tuple[SplitConvolution, torch.Size]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], _: Any) -> None:
        assert isinstance(layer, SplitConvolution)
        if not layer.geometry.local and not layer.geometry.crops:
            met.append((layer, inputs[0].shape))

    handles = [layer.register_forward_hook(note) for layer in model.modules() if isinstance(layer, SplitConvolution)]
    forward(model)
    for handle in handles:
        handle.remove()
    for layer, shape in met:
        one, pieces = ways(layer, shape)
        torch.testing.assert_close(torch.cat(pieces(), dim=2), one(), rtol=1e-3, atol=1e-3)
        for key, way in (("one_piece_s", one), ("pieces_s", lambda pieces=pieces: torch.cat(pieces(), dim=2))):
            sums[key] += statistics.median(seconds(way) for _ in range(REPEATS))
    return {**sums, "convolutions": len(met)}


def ways(layer: SplitConvolution, shape: torch.Size) -> tuple[Callable[[], Tensor], Callable[[], list[Tensor]]]:
    """The convolution of a widened part, whole and in pieces: the interior, and the parts that need fetched rows."""
    (widening,) = layer.geometry.widenings
    size = list(shape)
    size[2] = widening.need.length
    wide = laid_out(torch.randn(size))
    weight = layer.met_weight()
    stride, extent = layer.geometry.stride[0], (weight.shape[2] - 1) * layer.geometry.dilation[0] + 1
    known = widening.kept.moved(-widening.need.start)
    before = [extent for _, extent in widening.receives if extent.start < widening.kept.start]
    after = [extent for _, extent in widening.receives if extent.start >= widening.kept.stop]
    # Padding is known, too.
    low, high = (known.start if before else 0), (known.stop if after else widening.need.length)
    outputs = (widening.need.length - extent) // stride + 1
    first = min(-(-low // stride), outputs)
    last = max(min((high - extent) // stride + 1, outputs), first)

    def convolve(start: int, stop: int) -> Tensor:
        rows = wide.narrow(2, start * stride, (stop - start - 1) * stride + extent)
        return torch.convolution(rows, weight, layer.bias, *layer.geometry.arguments)

    cuts = [(start, stop) for start, stop in ((0, first), (first, last), (last, outputs)) if stop > start]
    return lambda: convolve(0, outputs), lambda: [convolve(*cut) for cut in cuts]
