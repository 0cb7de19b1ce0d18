"""Gradients are copied into another memory layout only where theirs is another."""

from __future__ import annotations

import torch
from torch import nn

from hpcbench.optim.tensors import gradient


def test_a_gradient_in_the_memory_order_of_its_weights_is_not_copied() -> None:
    """A kernel of one with channels last and its gradient without have other strides and one order."""
    for size, copied in ((1, False), (3, True)):
        weight = nn.Parameter(torch.rand(8, 4, size, size).contiguous(memory_format=torch.channels_last))
        weight.grad = torch.rand(8, 4, size, size)
        if not copied:
            weight.grad = weight.grad.as_strided(weight.shape, (4, 1, 4, 4))
        assert weight.grad.stride() != weight.stride()
        found = gradient("LAMB", weight)
        assert torch.equal(found, weight.grad)
        assert (found.data_ptr() != weight.grad.data_ptr()) == copied
