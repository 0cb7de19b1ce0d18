"""Batch norm over a group of ranks on an accelerator: with a group of one it is a plain one, in each precision."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hpcbench.parallel.batchnorm_group import share_batch_norm
from hpcbench.parallel.group import Group, default_backend
from staging.ranks.launch import Launch

pytestmark = pytest.mark.gpu


@pytest.fixture
def group(device: torch.device) -> Iterator[Group]:
    """A process group of this process alone, with the accelerator's own backend."""
    store = dist.HashStore()
    dist.init_process_group(default_backend(device), store=store, rank=0, world_size=1)
    yield Group(Launch(), device, store)
    dist.destroy_process_group()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_a_group_of_one_is_a_plain_batch_norm(group: Group, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    plain, shared = (nn.Sequential(nn.BatchNorm2d(8)).to(group.device, wide) for _ in range(2))
    share_batch_norm(shared, group, 1, timeout_s=60)
    x = torch.randn(4, 8, 6, 5, device=group.device).to(dtype).to(memory_format=torch.channels_last)
    weights = torch.randn(4, 8, 6, 5, device=group.device).to(wide)
    found = []
    for model in (plain, shared):
        own = x.clone().requires_grad_()
        output = model(own)
        (output.to(wide) * weights).sum().backward()
        assert (output.dtype, own.grad is not None) == (dtype, True)
        found.append([output, own.grad, *(p.grad for p in model.parameters()), *model.buffers()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=tolerance, atol=tolerance)
