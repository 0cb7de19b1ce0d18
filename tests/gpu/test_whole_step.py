"""A whole step as one graph on an accelerator trains as the eager step does, also where a batch is shorter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hpcbench.config.schema import OptimConfig
from hpcbench.data.device_prefetch import DevicePrefetcher
from hpcbench.optim.clip import clip_gradients
from hpcbench.optim.registry import create_optimizer
from hpcbench.train.whole_step import WholeStep

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["sgd", "adamw", "nvlamb", "lars"])
@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_a_captured_whole_step_is_the_eager_one(name: str, clip: float, device: torch.device, graphs: Any) -> None:
    if device.type == "cpu" and (clip or name in ("nvlamb", "lars")):
        pytest.skip("needs an accelerator: a processor computes norms on the host, which no graph holds")
    found = []
    for capture in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).to(
            device
        )
        optimizer = create_optimizer(
            OptimConfig(name=name, lr=0.01), [{"params": list(model.parameters())}], device, capture
        )

        def gradients(x: Tensor, y: Tensor, model: nn.Module = model) -> Tensor:
            loss = functional.mse_loss(model(x), y)
            torch.autograd.backward(loss)
            return loss.detach()

        def bound(model: nn.Module = model) -> Tensor:
            return clip_gradients(model.parameters(), clip)

        step = WholeStep(gradients, optimizer, device, clip=bound if clip else None, capture=capture)
        generator = torch.Generator().manual_seed(1)
        sizes = [4] * 6 + [2, 4, 4]
        batches = [(torch.rand(n, 3, 8, 8, generator=generator), torch.rand(n, 4, generator=generator)) for n in sizes]
        losses = [
            step(0.01 / (1 + number), *batch)
            for number, batch in enumerate(DevicePrefetcher(device, pin=True)(batches))
        ]
        found.append((torch.stack(losses), *model.state_dict().values()))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-3, atol=1e-4)
