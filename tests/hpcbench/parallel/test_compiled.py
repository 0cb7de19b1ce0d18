"""What the compiler makes of blocks that keep no activations, and of a model whose layers exchange messages."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from hpcbench.parallel.activation_checkpointing import checkpoint_activations

pytestmark = pytest.mark.slow


class BrokenBlock(nn.Sequential):
    """Convolution and batch norm, between which the compiler gives up."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, h, w) to the same."""
        x = self[0](x)
        torch._dynamo.graph_break()  # type: ignore[no-untyped-call]
        y: Tensor = self[1](x)
        return y


def parts() -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)


@pytest.mark.parametrize("block", [nn.Sequential, BrokenBlock])
def test_statistics_are_updated_once_where_activations_are_recomputed(block: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(block(*parts()), nn.ReLU(), block(*parts())).double()
    plain = copy.deepcopy(model)
    checkpoint_activations(part for part in model if isinstance(part, block))
    called = torch.compile(model, dynamic=False, backend="aot_eager")
    for step in range(3):
        x = torch.randn(4, 3, 8, 8, dtype=torch.float64) + step
        called(x).square().sum().backward()
        plain(x).square().sum().backward()
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert int(model[0][1].num_batches_tracked) == 3
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)
