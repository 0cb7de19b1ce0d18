"""3-D convolutions of inputs that are shorter than their kernel, in bfloat16 on a CPU.

oneDNN's kernel for the gradient of the weights (``jit_bf16:avx512_core_bf16``, in torch 2.11 to 2.13) reads beyond its
input if that is shorter than the kernel, as in the last layers of a network on small samples: the gradients contain
whatever was in memory, often NaN. The kernel is right if the padding is part of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn import functional


class PaddedConv3d(nn.Conv3d):
    """A convolution that pads a short input itself, with the same results and the same parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in, d, h, w) to (batch, out, d', h', w')."""
        zeros = zeros_beside(self, x.shape[2:])
        if not any(zeros):
            return super().forward(x)
        padding = without(cast("Sequence[int]", self.padding), zeros)
        return functional.conv3d(
            pad(x, zeros), self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


def zeros_beside(layer: nn.Conv3d, sizes: Sequence[int]) -> tuple[int, ...]:
    """Zeros that an input of ``layer`` needs on each side of each dimension: the layer's padding where it is short."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        return (0, 0, 0)
    reach = [dilation * (kernel - 1) + 1 for dilation, kernel in zip(layer.dilation, layer.kernel_size, strict=True)]
    return tuple(
        padding if size < needed else 0 for padding, size, needed in zip(layer.padding, sizes, reach, strict=True)
    )


def without(padding: Sequence[int], zeros: Sequence[int]) -> tuple[int, ...]:
    """The padding that a convolution still needs when its input already has ``zeros`` on each side."""
    return tuple(all_of_it - done for all_of_it, done in zip(padding, zeros, strict=True))


def pad(x: Tensor, zeros: Sequence[int]) -> Tensor:
    """``x`` with ``zeros`` before and after it in each of its last dimensions."""
    return functional.pad(x, [count for count in reversed(zeros) for _ in range(2)])


def pad_short_inputs(model: nn.Module) -> None:
    """Let every 3-D convolution of ``model`` pad short inputs itself, in place."""
    for layer in model.modules():
        if type(layer) is nn.Conv3d:
            layer.__class__ = PaddedConv3d
