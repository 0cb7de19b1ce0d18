"""torch.compile of whole models with static shapes: one graph without breaks, and the numbers of the eager model.

The backend is the one without a code generator: kernels for a processor take minutes to build, and are not those of an
accelerator. What is traced, made functional and differentiated ahead of time is the same.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.train.dropout import set_sample_keys

pytestmark = pytest.mark.slow

SMALL: dict[str, dict[str, Any]] = {
    "cosmoflow": {"data.augment": False, "model.conv_layers": 2, "model.dropout": 0.5},
    "deepcam": {"data.height": 16, "data.width": 32, "model.width_factor": 0.03, "model.middle_blocks": 0},
}


@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_a_compiled_model_is_the_eager_one(app: str, dtype: torch.dtype, tolerance: float) -> None:
    application = find_application(app)
    config: Any = resolve(application, "smoke", overrides=SMALL[app])
    torch.manual_seed(0)
    eager: nn.Module = application.module("model").build_model(config).to(dtype)
    compiled = copy.deepcopy(eager)
    inputs = application.module("shapes").batch_shapes(config, 2)[0]
    x = torch.rand(inputs.shape, dtype=dtype)
    layout = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    x = x.contiguous(memory_format=layout)  # type: ignore[call-overload]
    found = []
    for model, forward in (
        (eager, eager),
        (compiled, torch.compile(compiled, dynamic=False, fullgraph=True, backend="aot_eager")),
    ):
        set_sample_keys(model, torch.tensor([3, 4]))
        output = forward(x)
        (output * torch.linspace(0.5, 1, output.numel(), dtype=dtype).reshape(output.shape)).sum().backward()
        found.append([output, *(parameter.grad for parameter in model.parameters()), *model.buffers()])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, rtol=tolerance, atol=tolerance * float(one.abs().max() + 1e-6))
