"""What an accelerator does differently from the processor that counts, for tensors that have shapes but no data.

Such tensors report a CPU as their device, since autocast supports no other device without data. Counts must not depend
on which processor makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)


class Pooling(TorchFunctionMode):
    """Run pooling and resizing in the type of their input, where autocast on the CPU uses float32."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if "pool" in name or "upsample" in name or "interpolate" in name:
            with torch.autocast("cpu", enabled=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class ConvolutionLayout(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Make convolutions return channels-last tensors for channels-last inputs, gradients included.

    cuDNN, MIOpen and oneDNN do this. torch reports it for oneDNN only where the processor computes in the type:
    without AVX-512, bfloat16 gradients of weights would be counted as copied to another layout.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in CONVOLUTIONS or args[0].dtype == torch.float64:
            return result
        layout = common_layout([tensor for tensor in args[:3] if isinstance(tensor, Tensor) and tensor.dim() >= 4])
        if isinstance(result, Tensor):
            return in_layout(result, layout)
        return tuple(in_layout(output, layout) for output in result)


def common_layout(tensors: Sequence[Tensor]) -> torch.memory_format:
    """The channels-last layout if any of ``tensors`` has it, else the contiguous one."""
    layouts = [suggest_memory_format(tensor) for tensor in tensors]
    return next((layout for layout in layouts if layout != torch.contiguous_format), torch.contiguous_format)


def in_layout(tensor: Tensor | None, layout: torch.memory_format) -> Any:
    """``tensor`` in ``layout``, if it has channels."""
    return tensor if tensor is None or tensor.dim() < 4 else tensor.contiguous(memory_format=layout)
