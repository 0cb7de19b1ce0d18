"""Split layers that chance does not draw: branches and heads of models, memory layouts, autocast, far neighbours."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from hpcbench.parallel.spatial.convolution import SplitConvolution
from hpcbench.parallel.spatial.layers import own_part, split_layers
from hpcbench.parallel.spatial.pooling import Gather

from .threads import ThreadAxis, ThreadWorld, on_ranks
from .whole import assembled, assert_split_is_whole, grid, passed


@pytest.mark.parametrize("ranks", [{2: 3}, {2: 2, 3: 2}])
def test_a_global_mean_and_what_follows_it(ranks: dict[int, int]) -> None:
    """A branch as DeepCAM's: the image's mean, a convolution of it, added to every place."""

    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.AdaptiveAvgPool2d(1)
            self.after = nn.Conv2d(3, 3, 1)
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) * torch.tanh(self.after(self.mean(x)))

    torch.manual_seed(0)
    inputs, whole = torch.randn(2, 3, 7, 9, dtype=torch.float64), Branch().double()
    outputs, gradients, along = passed(whole, inputs)

    def work(axes: dict[int, ThreadAxis]) -> tuple[Tensor, list[Tensor], Tensor]:
        model = Branch().double()
        model.load_state_dict(whole.state_dict())
        split_layers(model, (3, 7, 9), axes, whole=["after"])
        return passed(model, own_part(inputs, axes), axes)

    results = on_ranks(ranks, work)
    torch.testing.assert_close(assembled([each[0] for each in results], grid(ranks), outputs.shape), outputs)
    torch.testing.assert_close(assembled([each[2] for each in results], grid(ranks), along.shape), along)
    for number, gradient in enumerate(gradients):
        torch.testing.assert_close(torch.stack([each[1][number] for each in results]).sum(0), gradient)


@pytest.mark.parametrize("ranks", [{2: 3}, {2: 2, 3: 2}])
def test_gathered_samples_and_a_dense_head(ranks: dict[int, int]) -> None:
    """With the loss divided by the ranks of a sample, the sum over ranks is every parameter's gradient."""
    torch.manual_seed(0)
    shape = (2, 6, 5, 4)
    inputs = torch.randn(2, *shape, dtype=torch.float64)
    blocks, head = nn.Conv3d(2, 3, 3, padding=1).double(), nn.Linear(3 * 6 * 5 * 4, 2).double()

    def losses(blocks: nn.Module, inputs: Tensor, count: int, head: nn.Module) -> list[Tensor]:
        parameters = [*blocks.parameters(), *head.parameters()]
        loss = head(blocks(inputs).flatten(1)).square().sum() / count
        return [loss.detach() * count, *torch.autograd.grad(loss, parameters)]

    expected = losses(blocks, inputs, 1, head)

    def work(axes: dict[int, ThreadAxis]) -> list[Tensor]:
        own, own_head = nn.Sequential(nn.Conv3d(2, 3, 3, padding=1).double()), nn.Linear(360, 2).double()
        own.load_state_dict({f"0.{key}": value for key, value in blocks.state_dict().items()})
        own_head.load_state_dict(head.state_dict())
        split_layers(own, shape, axes)
        own.append(Gather(shape[1:], axes))
        return losses(own, own_part(inputs, axes), math.prod(ranks.values()), own_head)

    results = on_ranks(ranks, work)
    for each in results:
        torch.testing.assert_close(each[0], expected[0])
    for number, gradient in enumerate(expected[1:], 1):
        torch.testing.assert_close(torch.stack([each[number] for each in results]).sum(0), gradient)


@pytest.mark.parametrize("ranks", [{2: 3}, {2: 2, 3: 2}])
@pytest.mark.parametrize("layer", ["conv", "depthwise", "transposed", "pool"])
def test_layers_in_float32_and_channels_last(layer: str, ranks: dict[int, int]) -> None:
    def make() -> nn.Module:
        return {
            "conv": lambda: nn.Conv3d(4, 6, 3, padding=1),
            "depthwise": lambda: nn.Conv3d(4, 4, 3, padding=2, dilation=2, groups=4, bias=False),
            "transposed": lambda: nn.ConvTranspose3d(4, 3, 3, 2, 1, 1),
            "pool": lambda: nn.MaxPool3d(3, 2, 1),
        }[layer]()

    assert_split_is_whole(make, (4, 9, 8, 6), ranks, tolerance=1e-4, dtype=torch.float32, layout=torch.channels_last_3d)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_split_means_of_16_bit_cubes(dtype: torch.dtype) -> None:
    """Torch's own average pooling refuses these on a CPU."""
    inputs = torch.randn(2, 3, 8, 6, 4).to(dtype)
    expected = nn.AvgPool3d(2)(inputs.float()).to(dtype)

    def work(axes: dict[int, ThreadAxis]) -> tuple[Tensor, Tensor]:
        model = nn.Sequential(nn.AvgPool3d(2))
        split_layers(model, (3, 8, 6, 4), axes)
        part = own_part(inputs, axes).requires_grad_()
        output = model(part)
        output.sum().backward()
        assert part.grad is not None
        return output, part.grad

    results = on_ranks({2: 2}, work)
    assert torch.equal(torch.cat([output for output, _ in results], dim=2), expected)
    for _, gradient in results:
        assert torch.equal(gradient, torch.full_like(gradient, 0.125))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_layouts_stay_and_halos_are_as_wide_as_activations(layout: torch.memory_format) -> None:
    """Under autocast what travels is bfloat16, and the result that of the whole layer."""
    torch.manual_seed(0)
    inputs = torch.randn(2, 8, 10, 12).contiguous(memory_format=layout)
    whole = nn.Conv2d(8, 8, 3, padding=1)
    with torch.autocast("cpu", torch.bfloat16):
        expected = whole(inputs)

    def work(axes: dict[int, ThreadAxis]) -> tuple[Tensor, int]:
        model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1))
        model[0].load_state_dict(whole.state_dict())
        split_layers(model, (8, 10, 12), axes)
        part = own_part(inputs, axes).contiguous(memory_format=layout).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            output = model(part)
        assert output.dtype == torch.bfloat16
        assert output.is_contiguous(memory_format=layout)
        output.float().sum().backward()
        assert part.grad is not None
        assert part.grad.dtype == torch.float32
        return output, axes[2].world.bytes[axes[2].rank]

    results = on_ranks({2: 2}, work)
    torch.testing.assert_close(torch.cat([output for output, _ in results], dim=2), expected, rtol=0.02, atol=0.02)
    row = 2 * 8 * 12 * 2
    assert [sent for _, sent in results] == [2 * row, 2 * row], "a row of activations, and one of gradients"


def test_a_layer_that_follows_may_work_in_place() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), nn.ReLU(inplace=True), nn.Conv2d(3, 2, 3, padding=1))

    assert_split_is_whole(make, (2, 5, 4), {2: 2})


def test_a_dilation_that_reaches_beyond_the_neighbours() -> None:
    """DeepCAM's 18 on 48 rows over 16 ranks, of which each has three."""
    assert_split_is_whole(lambda: nn.Conv2d(2, 2, 3, padding=18, dilation=18), (2, 48, 3), {2: 16})


def test_a_layer_under_two_names_is_split_under_both() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 1, 3, padding=1)
            self.again = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.again(self.first(x))

    assert_split_is_whole(Shared, (1, 8, 8), {2: 2})
    shared = Shared()
    split_layers(shared, (1, 8, 8), {2: ThreadAxis(ThreadWorld(2), 0)}, whole=["first"])
    assert type(shared.first) is nn.Conv2d
    assert isinstance(shared.again, SplitConvolution), "the size is noted under the first name, whatever that is"
