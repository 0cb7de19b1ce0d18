"""Counts are those of an accelerator, whichever processor makes them."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hpcbench.planning.accelerator_modes import ConvolutionLayout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d], ids=str)
def test_gradients_have_the_layout_of_what_they_are_of(layout: torch.memory_format, dtype: torch.dtype) -> None:
    """Few processors have kernels of oneDNN for float16, and some have none for bfloat16."""
    ones = [1, 1, 1]
    with FakeTensorMode(), ConvolutionLayout():
        x = torch.empty(1, 4, 8, 8, 8, dtype=dtype).contiguous(memory_format=layout)
        weight = torch.empty(6, 4, 3, 3, 3, dtype=dtype).contiguous(memory_format=layout)
        y = torch.ops.aten.convolution(x, weight, None, ones, ones, ones, False, [0, 0, 0], 1)
        gradients = torch.ops.aten.convolution_backward(
            y, x, weight, None, ones, ones, ones, False, [0, 0, 0], 1, [True, True, False]
        )
    assert y.is_contiguous(memory_format=layout)
    assert gradients[0].stride() == x.stride()
    assert gradients[1].stride() == weight.stride()
