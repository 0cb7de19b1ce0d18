"""Operations of convolutions as matrix products that a GPU executes in tiles, from their shapes.

A convolution is a product of M x K and K x N matrices (NVIDIA, Convolutional Layers User's Guide): forward
M = samples x outputs, N = output channels, K = input channels x kernel; for the gradient of the input M = samples x
inputs, N = input channels, K = output channels x kernel; for that of the kernel M = output channels, N = input
channels x kernel, K = samples x outputs. For two reasons a GPU executes more than these operations:

* A tile computes whole blocks of M, N and K (NVIDIA, Matrix Multiplication Background User's Guide: tile
  quantization; 64 x 64 is the smallest of the typical tiles there, and cuBLASLt names smaller ones).
* The gradient of the input of a strided convolution (the forward pass of a transposed one) multiplies by the zeros
  between the strides unless a kernel leaves them out, as CUTLASS does since version 2.8 of November 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from hpcbench.characterisation.operations import Operation

Tile = tuple[int, int, int]
SMALLEST_TILE: Tile = (64, 64, 32)
COMMON_TILE: Tile = (128, 128, 32)


@dataclass(frozen=True)
class Product:
    """One of the products of a convolution: in each of ``groups`` an ``m`` x ``k`` and a ``k`` x ``n`` matrix."""

    m: int
    n: int
    k: int
    groups: int
    stride: int
    """Product of the strides if this is the gradient of an input, else 1."""

    @property
    def flop(self) -> float:
        """Operations without the zeros between strides."""
        return 2.0 * self.m * self.n * self.k * self.groups / self.stride

    @property
    def with_zeros(self) -> float:
        """Operations with the zeros between strides."""
        return self.flop * self.stride

    def in_tiles(self, tile: Tile) -> float:
        """Operations with zeros, in whole tiles; a grouped convolution has kernels of its own, without tiles."""
        if self.groups > 1:
            return self.flop
        m, n, k = (-(-size // part) * part for size, part in zip((self.m, self.n, self.k), tile, strict=True))
        return 2.0 * m * n * k


def products(operation: Operation) -> list[Product]:
    """Return the products of a convolution, forward or backward; empty for other operations."""
    args: Any = operation.args
    if operation.name == "convolution":
        x, weight, (stride, padding, dilation, transposed, extra, groups) = args[0], args[1], args[3:9]
        wanted = ["input" if transposed else "forward"]
    elif operation.name == "convolution_backward":
        x, weight, (stride, padding, dilation, transposed, extra, groups, mask) = args[1], args[2], args[4:11]
        wanted = ["forward" if transposed else "input"] if mask[0] else []
        wanted += ["kernel"] if mask[1] else []
    else:
        return []
    spread = [step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)]
    given = x.shape[2:]
    if transposed:  # its output is the input of the convolution that it transposes
        other = [(size - 1) * step - 2 * pad + wide + more + 1
                 for size, step, pad, wide, more in zip(given, stride, padding, spread, extra)]  # noqa: B905  # fmt: skip
        large, small = prod(other), prod(given)
    else:
        other = [(size + 2 * pad - wide - 1) // step + 1
                 for size, step, pad, wide in zip(given, stride, padding, spread, strict=True)]  # fmt: skip
        large, small = prod(given), prod(other)
    samples, kernel = x.shape[0], prod(weight.shape[2:])
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    product_by_kind = {
        "forward": Product(samples * small, outputs, inputs * kernel, groups, 1),
        "input": Product(samples * large, inputs, outputs * kernel, groups, prod(stride)),
        "kernel": Product(outputs, inputs * kernel, samples * small, groups, 1),
    }
    return [product_by_kind[kind] for kind in wanted]
