"""Convolutions of inputs that are shorter than their kernel: the gradients of bfloat16 are those of float64."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hpcbench.cli.main import main
from hpcbench.parallel.padded_convolution import PaddedConv3d, pad_short_inputs, zeros_beside
from hpcbench.parallel.spatial.convolution import SplitConvolution
from tests.hpcbench.parallel.spatial.threads import ThreadAxis, on_ranks

SHORT = [
    ((2, 2, 2), 3, 1),
    ((2, 4, 4), 3, 1),
    ((1, 2, 2), 3, 1),
    ((4, 4, 4), 5, 2),
    ((6, 2, 4), 4, 1),
    ((3, 3, 8), 7, 3),
]


def dirty_memory() -> None:
    """What is allocated next may hold NaN."""
    kept = [torch.full((1 << power,), float("nan")) for power in range(6, 17) for _ in range(8)]
    del kept


def gradients(layer: nn.Conv3d, x: Tensor, *, bfloat16: bool) -> list[Tensor]:
    layer.zero_grad()
    x = x.detach().requires_grad_()
    dirty_memory()
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        y = layer(x)
    dirty_memory()
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y))
    return [each.double() for each in (y.detach(), x.grad, layer.weight.grad, layer.bias.grad)]  # type: ignore[union-attr]


@pytest.mark.parametrize(("sizes", "kernel", "padding"), SHORT)
def test_gradients_in_bfloat16_are_those_of_float64(sizes: tuple[int, ...], kernel: int, padding: int) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv3d(8, 16, kernel, padding=padding))
    exact = copy.deepcopy(model[0]).double()
    pad_short_inputs(model)
    layer = model[0]
    assert isinstance(layer, PaddedConv3d)
    x = torch.randn(4, 8, *sizes)
    expected = gradients(exact, x.double(), bfloat16=False)
    for _ in range(4):
        for found, true in zip(gradients(layer, x, bfloat16=True), expected, strict=True):
            assert float((found - true).abs().max()) < 0.03 * float(true.abs().max())


@pytest.mark.parametrize(("sizes", "kernel", "padding"), [*SHORT, ((8, 8, 8), 3, 1)])
def test_padding_beside_the_convolution_changes_nothing(sizes: tuple[int, ...], kernel: int, padding: int) -> None:
    torch.manual_seed(2)
    plain = nn.Conv3d(3, 5, kernel, padding=padding).double()
    model = nn.Sequential(copy.deepcopy(plain))
    pad_short_inputs(model)
    x = torch.randn(2, 3, *sizes, dtype=torch.float64)
    for found, true in zip(gradients(model[0], x, bfloat16=False), gradients(plain, x, bfloat16=False), strict=True):
        torch.testing.assert_close(found, true, rtol=1e-12, atol=1e-12)
    assert model.state_dict().keys() == {"0.weight", "0.bias"}
    assert any(zeros_beside(plain, sizes)) == (min(sizes) < kernel)


def test_what_pads_otherwise_or_not_at_all_is_left_alone() -> None:
    assert zeros_beside(nn.Conv3d(1, 1, 3), (4, 4, 4)) == (0, 0, 0)
    assert zeros_beside(nn.Conv3d(1, 1, 3, padding="same"), (2, 2, 2)) == (0, 0, 0)
    assert zeros_beside(nn.Conv3d(1, 1, 3, padding=1, padding_mode="circular"), (2, 2, 2)) == (0, 0, 0)
    assert zeros_beside(nn.Conv3d(1, 1, (1, 3, 3), padding=(0, 1, 1)), (1, 4, 2)) == (0, 0, 1)
    assert zeros_beside(nn.Conv3d(1, 1, 3, padding=2, dilation=2), (4, 5, 4)) == (2, 0, 2)


def test_a_split_layer_pads_what_is_not_split() -> None:
    torch.manual_seed(3)
    plain = nn.Conv3d(2, 3, 3, padding=1).double()
    layer = copy.deepcopy(plain)
    layer.__class__ = PaddedConv3d
    x = torch.randn(1, 2, 2, 8, 2, dtype=torch.float64)
    expected = plain(x)

    def part(axes: dict[int, ThreadAxis]) -> Tensor:
        split = SplitConvolution(layer, x.shape[2:], dict(axes))
        assert split.zeros == (1, 0, 1)
        found: Tensor = split(x.chunk(2, 3)[axes[3].rank])
        return found

    torch.testing.assert_close(torch.cat(on_ranks({3: 2}, part), 3), expected, rtol=1e-12, atol=1e-12)


def test_a_run_on_tiny_samples_in_bfloat16_has_no_nan(tmp_path: Path) -> None:
    """Samples of 8^3, whose last convolution sees 2^3."""
    settings = tmp_path / "tiny.yaml"
    settings.write_text(
        "data: {sample_size: 8}\nsimulate: {universe_size: 8, train_samples: 16, validation_samples: 8}\n"
    )
    root = tmp_path / "data"
    common = ["--preset", "smoke", "--config", str(settings)]
    assert main(["data", "simulate", "cosmoflow", *common, "--out", str(root), "--processes", "1"]) == 0
    for seed in range(1, 4):
        words = ["train", "cosmoflow", *common, "--data.root", str(root), "--run-dir", str(tmp_path / str(seed))]
        words += ["--train.precision", "bf16-mixed", "--train.max_epochs", "1", "--train.seed", str(seed)]
        assert main([*words, "--train.baselines", "false", "--train.page", "false"]) in (0, 3)
