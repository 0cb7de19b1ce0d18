"""A step in channels-last copies no activation: neither to another layout nor, in bf16, to float32 and back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
COPIES = ("clone", "copy_", "_to_copy", "contiguous")
aten = torch.ops.aten


class Watch(TorchDispatchMode):
    """Notes which activations are copied, and which results are not channels-last."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copied: list[tuple[str, tuple[int, ...], torch.dtype, torch.dtype]] = []
        self.other_layout: list[tuple[str, tuple[int, ...]]] = []
        self.normalized: list[tuple[torch.dtype, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in COPIES and isinstance(result, Tensor) and result.dim() in LAYOUTS:
            source = args[1] if name == "copy_" else args[0]
            self.copied.append((name, tuple(source.shape), source.dtype, result.dtype))
        if name in ("native_batch_norm", "_native_batch_norm_legit"):
            self.normalized.append((args[0].dtype, result[0].dtype))
            assert result[1].dtype == torch.float32, "statistics"
        for part in result if isinstance(result, tuple) else (result,):
            made = isinstance(part, Tensor) and part.dim() in LAYOUTS and not func.is_view
            if made and not part.is_contiguous(memory_format=LAYOUTS[part.dim()]):
                self.other_layout.append((name, tuple(part.shape)))
        return result


def problem(app: str) -> tuple[nn.Module, Any, Tensor, Tensor]:
    """A small model with channels-last kernels, its task, and a batch as it is stored."""
    application = find_application(app)
    config: Any = resolve(application, "smoke")
    torch.manual_seed(0)
    model: nn.Module = application.module("model").build_model(config)
    for parameter in model.parameters():
        if parameter.dim() in LAYOUTS:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[parameter.dim()])
    task = application.module("task").build_task(config)
    if app == "cosmoflow":
        return (
            model,
            task,
            torch.randint(0, 4, (2, 16, 16, 16, 4), dtype=torch.int16).permute(0, 4, 1, 2, 3),
            (torch.rand(2, 4)),
        )
    task.set_range(torch.zeros(16), torch.ones(16))
    inputs, targets = torch.rand(2, 48, 64, 16).permute(0, 3, 1, 2), torch.randint(0, 3, (2, 48, 64))
    return model, task, inputs, targets


@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
def test_a_step_copies_no_activation(app: str, bf16: bool) -> None:
    if bf16 and app == "cosmoflow" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("no AVX-512 here: torch convolves volumes in bf16 by a loop that wants another layout")
    model, task, inputs, targets = problem(app)
    kernels = {tuple(parameter.shape) for parameter in model.parameters()}
    for _ in range(2):  # the first one moves constants of the task
        with Watch() as watch:
            prepared, target = task.prepare(inputs, targets, None)
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                output = model(prepared)
            task.loss(output.float(), target).backward()
    stored, logits = tuple(inputs.shape), tuple(output.shape)
    mean = (2, model.pyramid.image_mean[1].out_channels, 1, 1) if app == "deepcam" else ()
    activations = [
        entry for entry in watch.copied if entry[1] not in kernels and entry[1] not in (stored, logits, mean)
    ]
    assert activations == []
    # What the loss makes of the logits has the loss's own layout.
    assert [entry for entry in watch.other_layout if entry[1] != logits] == []
    if app == "deepcam":
        kind = torch.bfloat16 if bf16 else torch.float32
        assert set(watch.normalized) == {(kind, kind)}


def test_every_normalisation_in_bf16_is_exact_but_for_its_rounding() -> None:
    """Statistics are float32: the result for a bf16 input is that in float64, rounded to 8 bits."""
    model, task, inputs, targets = problem("deepcam")
    checked = []

    def check(layer: nn.BatchNorm2d, given: tuple[Tensor], result: Tensor) -> None:
        x = given[0].detach().double()
        mean, variance = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), unbiased=False)
        weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
        scale = weight / (variance + layer.eps).sqrt()
        expected = (x - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]
        assert (given[0].dtype, result.dtype) == (torch.bfloat16, torch.bfloat16)
        torch.testing.assert_close(result.detach().double(), expected, rtol=2**-8, atol=1e-3)
        # The first step moves the mean from 0 by a tenth of the way.
        torch.testing.assert_close(layer.running_mean.double(), 0.1 * mean, rtol=1e-4, atol=1e-5)
        checked.append(layer)

    layers = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in layers:
        layer.register_forward_hook(check)  # type: ignore[arg-type]
    prepared, _ = task.prepare(inputs, targets, None)
    with torch.autocast("cpu", torch.bfloat16):
        model(prepared)
    assert len(checked) == len(layers) > 0


def test_the_image_mean_and_its_gradient_are_torchs() -> None:
    from apps.deepcam.model import ImageMean, SpatialPyramid

    torch.manual_seed(0)
    pyramid = SpatialPyramid(8, 8).double()
    plain = copy.deepcopy(pyramid)
    plain.image_mean[0] = nn.AdaptiveAvgPool2d(1)
    assert isinstance(pyramid.image_mean[0], ImageMean)
    x = torch.randn(2, 8, 6, 10, dtype=torch.float64).to(memory_format=torch.channels_last)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    output = pyramid(one)
    parts = [branch(two) for branch in plain.branches]
    expected = plain.merge(torch.cat([*parts, plain.image_mean(two).expand_as(parts[0])], dim=1))
    weights = torch.randn_like(output)
    (output * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(one.grad, two.grad)
    for mine, theirs in zip(pyramid.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
