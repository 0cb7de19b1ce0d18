"""Every layer, split over ranks, computes what it computes whole: outputs and all gradients, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hpcbench.parallel.spatial.layers import check_sizes, input_sizes, own_part, split_layers
from hpcbench.parallel.spatial.pooling import Gather
from staging.errors import InputError

from .threads import ThreadAxis, ThreadWorld, on_ranks

TRIES = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)


def assert_split_is_whole(
    make: Callable[[], nn.Module], sample: tuple[int, ...], ranks: dict[int, int], *, tolerance: float = 1e-11,
    dtype: torch.dtype = torch.float64, layout: torch.memory_format = torch.contiguous_format,
) -> None:  # fmt: skip
    """Outputs, gradients of the input and of the parameters of the split layers are those of the whole ones."""
    torch.manual_seed(0)
    inputs = torch.randn(2, *sample, dtype=dtype)
    whole = make().to(dtype)
    outputs, gradients, along = passed(whole, inputs)

    def work(axes: dict[int, ThreadAxis]) -> tuple[Tensor, list[Tensor], Tensor]:
        model = make().to(dtype)
        model.load_state_dict(whole.state_dict())
        model = nn.Sequential(model)
        split_layers(model, sample, axes)
        return passed(model, own_part(inputs, axes).contiguous(memory_format=layout), axes)

    results = on_ranks(ranks, work)
    places = grid(ranks)
    joined = assembled([result[0] for result in results], places, outputs.shape)
    torch.testing.assert_close(joined, outputs, rtol=tolerance, atol=tolerance)
    joined = assembled([result[2] for result in results], places, inputs.shape)
    torch.testing.assert_close(joined, along, rtol=tolerance, atol=tolerance)
    for number, gradient in enumerate(gradients):
        total = torch.stack([result[1][number] for result in results]).sum(0)
        torch.testing.assert_close(total, gradient, rtol=tolerance, atol=tolerance * max(1, gradient.abs().max()))


def passed(
    model: nn.Module, inputs: Tensor, axes: dict[int, ThreadAxis] | None = None
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Output, gradients of the parameters and of the input for a loss that weighs every output by its place."""
    inputs = inputs.detach().requires_grad_()
    output = model(inputs)
    weights = place_weights(output, axes)
    (output * weights).sum().backward()
    assert inputs.grad is not None
    return output.detach(), [parameter.grad for parameter in model.parameters()], inputs.grad  # type: ignore[misc]


def place_weights(output: Tensor, axes: dict[int, ThreadAxis] | None) -> Tensor:
    """A number for each element, a function of its place in the whole output."""
    shape = list(output.shape)
    starts = dict.fromkeys(range(output.dim()), 0)
    for dim, axis in (axes or {}).items():
        sizes = [None] * axis.size
        sizes[axis.rank] = output.shape[dim]  # type: ignore[call-overload]
        lengths = lengths_of(axis, output.shape[dim])
        starts[dim] = sum(lengths[: axis.rank])
    weights = torch.zeros(shape, dtype=output.dtype)
    for dim, size in enumerate(shape):
        view = [1] * len(shape)
        view[dim] = size
        weights = weights + torch.sin((starts[dim] + torch.arange(size, dtype=output.dtype)) * (1.3 + dim)).view(view)
    return weights


def lengths_of(axis: ThreadAxis, own: int) -> list[int]:
    lengths = torch.zeros(axis.size, dtype=torch.float64)
    lengths[axis.rank] = own
    return [int(each) for each in axis.all_reduce(lengths)]


def grid(ranks: dict[int, int]) -> list[dict[int, int]]:
    places: list[dict[int, int]] = [{}]
    for dim, size in ranks.items():
        places = [{**place, dim: index} for place in places for index in range(size)]
    return places


def assembled(parts: list[Tensor], places: list[dict[int, int]], shape: torch.Size) -> Tensor:
    """The parts of all ranks side by side."""
    by_place = {tuple(place.values()): part for place, part in zip(places, parts, strict=True)}
    dims = list(places[0])
    whole = concatenated(by_place, dims, ())
    assert whole.shape == shape
    return whole


def concatenated(parts: dict[tuple[int, ...], Tensor], dims: list[int], place: tuple[int, ...]) -> Tensor:
    if len(place) == len(dims):
        return parts[place]
    count = 1 + max(key[len(place)] for key in parts if key[: len(place)] == place)
    return torch.cat([concatenated(parts, dims, (*place, index)) for index in range(count)], dim=dims[len(place)])


def fits(model: nn.Module, sample: tuple[int, ...], ranks: dict[int, int]) -> bool:
    """Whether torch takes the layer, and every rank has a place of its input and of its output."""
    try:
        sizes = input_sizes(nn.Sequential(model), sample)["0"]
        check_sizes("0", *sizes, {dim: type("Size", (), {"size": size})() for dim, size in ranks.items()})
    except (InputError, RuntimeError):
        return False
    return all(size > 0 for size in sizes[1])


splits = st.one_of(
    st.integers(2, 4).map(lambda n: {2: n}),
    st.tuples(st.integers(2, 3), st.integers(2, 2)).map(lambda n: {2: n[0], 3: n[1]}),
    st.integers(2, 3).map(lambda n: {3: n}),
)


@TRIES
@given(st.data(), st.integers(2, 3), splits)
def test_convolutions(data: st.DataObject, dims: int, ranks: dict[int, int]) -> None:
    kernel = tuple(data.draw(st.integers(1, 5)) for _ in range(dims))
    stride = tuple(data.draw(st.integers(1, 3)) for _ in range(dims))
    dilation = tuple(data.draw(st.integers(1, 4)) for _ in range(dims))
    padding = tuple(data.draw(st.integers(0, 6)) for _ in range(dims))
    groups = data.draw(st.sampled_from([1, 2]))
    channels = 2 * data.draw(st.integers(1, 2))
    sample = (2, *(data.draw(st.integers(3, 12)) for _ in range(dims)))
    bias = data.draw(st.booleans())

    def make() -> nn.Module:
        kind: Any = nn.Conv2d if dims == 2 else nn.Conv3d
        return kind(2, channels, kernel, stride, padding, dilation, groups, bias)

    assume(fits(make(), sample, ranks))
    assert_split_is_whole(make, sample, ranks)


@TRIES
@given(st.data(), st.integers(2, 3), splits)
def test_transposed_convolutions(data: st.DataObject, dims: int, ranks: dict[int, int]) -> None:
    kernel = tuple(data.draw(st.integers(1, 4)) for _ in range(dims))
    stride = tuple(data.draw(st.integers(1, 3)) for _ in range(dims))
    dilation = tuple(data.draw(st.integers(1, 3)) for _ in range(dims))
    padding = tuple(data.draw(st.integers(0, 2)) for _ in range(dims))
    more = tuple(data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    groups = data.draw(st.sampled_from([1, 2]))
    sample = (2, *(data.draw(st.integers(2, 7)) for _ in range(dims)))

    def make() -> nn.Module:
        kind: Any = nn.ConvTranspose2d if dims == 2 else nn.ConvTranspose3d
        return kind(2, 4, kernel, stride, padding, more, groups, True, dilation)

    assume(fits(make(), sample, ranks))
    assert_split_is_whole(make, sample, ranks)


@TRIES
@given(st.data(), st.integers(2, 3), splits, st.sampled_from(["max", "average", "average of those inside"]))
def test_poolings(data: st.DataObject, dims: int, ranks: dict[int, int], kind: str) -> None:
    kernel = tuple(data.draw(st.integers(1, 4)) for _ in range(dims))
    stride = tuple(data.draw(st.integers(1, 4)) for _ in range(dims))
    padding = tuple(data.draw(st.integers(0, each // 2)) for each in kernel)
    dilation = tuple(data.draw(st.integers(1, 2)) for _ in range(dims))
    sample = (2, *(data.draw(st.integers(3, 10)) for _ in range(dims)))

    def make() -> nn.Module:
        if kind == "max":
            return (nn.MaxPool2d if dims == 2 else nn.MaxPool3d)(kernel, stride, padding, dilation)
        average: Any = nn.AvgPool2d if dims == 2 else nn.AvgPool3d
        return average(kernel, stride, padding, count_include_pad=kind == "average")

    assume(fits(make(), sample, ranks))
    assert_split_is_whole(make, sample, ranks)


@TRIES
@given(
    st.data(), st.integers(2, 3), splits, st.sampled_from(["nearest", "linear", "aligned"]),
    st.sampled_from([None, 2, 1.5, 0.6]),
)  # fmt: skip
def test_resizing(data: st.DataObject, dims: int, ranks: dict[int, int], mode: str, factor: float | None) -> None:
    sample = (2, *(data.draw(st.integers(3, 8)) for _ in range(dims)))
    size = tuple(data.draw(st.integers(2, 12)) for _ in range(dims)) if factor is None else None
    name = "nearest" if mode == "nearest" else {2: "bilinear", 3: "trilinear"}[dims]
    align = None if mode == "nearest" else mode == "aligned"

    def make() -> nn.Module:
        return nn.Upsample(size=size, scale_factor=factor, mode=name, align_corners=align)

    assume(fits(make(), sample, ranks))
    assert_split_is_whole(make, sample, ranks)


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


@pytest.mark.parametrize(
    ("layer", "sample", "words"),
    [
        (nn.LayerNorm(4), (3, 4, 4), "layer 0 (LayerNorm) has no form for samples that are split over ranks"),
        (
            nn.Conv2d(3, 3, 3, padding=1),
            (3, 2, 8),
            "layer 0 has an input of 2 places in dimension 1 of a sample",
        ),
        (nn.Conv2d(3, 3, 3, 4, padding=1), (3, 8, 8), "layer 0 has an output of 2 places in dimension 1 of a sample"),
        (nn.Conv2d(3, 3, 3, padding="same"), (3, 8, 8), "layer 0: a split convolution needs its padding in numbers"),
        (nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular"), (3, 8, 8), "not by padding_mode 'circular'"),
        (nn.MaxPool2d(2, ceil_mode=True), (3, 8, 8), "layer 0: a split pooling has no ceil_mode"),
        (nn.AvgPool2d(2, divisor_override=3), (3, 8, 8), "has no divisor_override"),
        (nn.AdaptiveAvgPool2d(2), (3, 8, 8), "layer 0: a split adaptive pooling gives one place, not 2"),
        (nn.Upsample(scale_factor=2, mode="bicubic"), (3, 8, 8), "a split Upsample has no mode 'bicubic'"),
        (nn.BatchNorm2d(3), (3, 8, 8), "layer 0 (BatchNorm2d) has no form"),
    ],
)
def test_what_cannot_be_split_is_said_in_one_line(layer: nn.Module, sample: tuple[int, ...], words: str) -> None:
    axes = {2: ThreadAxis(ThreadWorld(3), 0)}
    with pytest.raises(InputError) as caught:
        split_layers(nn.Sequential(layer), sample, axes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_layers_that_meet_two_sizes_or_none_are_refused() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)
            self.unused = nn.Conv2d(2, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(self.conv(x)[:, :, ::2])

    axes = {2: ThreadAxis(ThreadWorld(2), 0)}
    with pytest.raises(InputError, match=r"layer conv meets inputs of \(8, 8\) and of \(4, 8\); give each its own"):
        split_layers(Odd(), (2, 8, 8), axes)
    Odd.forward = lambda self, x: self.conv(x)  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"layer unused .* takes no part in a forward pass"):
        split_layers(Odd(), (2, 8, 8), axes)


def test_empty_containers_are_no_layers() -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Sequential())
    split_layers(model, (2, 8, 8), {2: ThreadAxis(ThreadWorld(2), 0)})
    assert list(model[1].children()) == []
