"""Memory that convolutions take on a processor besides their tensors.

torch computes a small convolution of one sample itself, from a matrix of all windows (im2col). oneDNN computes the
others. It reorders kernels and, in bfloat16 and float16, also the activations, for the kernel's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NATIVE_ELEMENTS = 20480
"""Up to this many elements (channels x first two dimensions), torch computes a float32 convolution itself."""


def workspace(func: Any, args: Sequence[Any], result: Any) -> int:
    """Bytes of workspace of an operation that is about to return ``result``; 0 if it is not a convolution."""
    if func is torch.ops.aten.convolution.default:
        x, weight = args[:2]
        transposed = bool(args[6])
        if native(x, weight, args[3], args[5], args[8], transposed=transposed):
            return windows(x if transposed else result, x if not transposed else result, weight) + copies(x, weight)
        return int(weight.nbytes)
    if func is torch.ops.aten.convolution_backward.default:
        gradient, x, weight = args[:3]
        transposed = bool(args[7])
        if native(x, weight, args[4], args[6], args[9], transposed=transposed):
            matrix = windows(x if transposed else gradient, gradient if transposed else x, weight)
            return matrix + copies(gradient, x, weight)
        if weight.dtype in (torch.bfloat16, torch.float16):
            return int(x.nbytes + gradient.nbytes + weight.nbytes + 4 * weight.numel())
        return int(2 * weight.nbytes)
    return 0


def kernels(func: Any, args: Sequence[Any]) -> set[tuple[Any, ...]]:
    """Keys of the kernels that oneDNN compiles for a convolution: one forward, two backward."""
    shapes = tuple(tuple(tensor.shape) for tensor in args[:3] if isinstance(tensor, Tensor))
    which = ("forward",) if func is torch.ops.aten.convolution.default else ("input", "weight")
    return {(kernel, shapes, args[0].dtype, str(args[3:])) for kernel in which}


def native(
    x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int, *, transposed: bool
) -> bool:
    """Whether torch computes a convolution itself, as ``use_mkldnn`` of its Convolution.cpp decides."""
    if x.dtype == torch.float64:
        return True
    if x.dtype != torch.float32 or groups > 1 or x.shape[0] > 1:
        return False
    if transposed and x.dim() == 5:
        return True
    few = x.shape[1:4].numel() <= NATIVE_ELEMENTS
    return few and not (weight.shape[-1] > 3 and weight.shape[-2] > 3)


def copies(*tensors: Tensor) -> int:
    """Bytes of what torch copies for convolutions of its own, which take only the plain layout."""
    return sum(int(tensor.nbytes) for tensor in tensors if not tensor.is_contiguous())


def windows(places: Tensor, channels: Tensor, weight: Tensor) -> int:
    """Bytes of the matrix with a window of ``channels`` for each of ``places``; 0 for kernels of one element."""
    kernel = weight.shape[2:].numel()
    if kernel == 1:
        return 0
    return int(channels.shape[1] * kernel * places.shape[2:].numel() * weight.element_size())
