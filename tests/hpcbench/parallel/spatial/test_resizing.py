"""Resized samples, split over ranks, are what torch makes of whole ones, for factors and sizes that round awkwardly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from hpcbench.parallel.spatial.layers import check_sizes, input_sizes, own_part, split_layers
from hpcbench.parallel.spatial.resize import resamplings
from staging.errors import InputError

from .threads import ThreadAxis, ThreadWorld, on_ranks
from .whole import assembled, assert_split_is_whole, grid, passed

TRIES = settings(
    max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
MODES = {
    1: ("nearest", "nearest-exact", "linear", "area"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
    3: ("nearest", "nearest-exact", "trilinear", "area"),
}
COPIES = ("nearest", "nearest-exact")
FACTORS = (1.0, 1.0000001, 0.9999999, 1.01, 1.1, 2.3, 1 / 3, 2 / 3, 0.7, 0.1, 4 / 3, 5.0, 2.0, 0.5, math.pi, 2, 3)
splits = st.one_of(st.integers(2, 4).map(lambda n: {2: n}), st.just({2: 2, 3: 2}), st.just({3: 3}))


@st.composite
def layers(draw: st.DrawFn, dims: int) -> dict[str, Any]:
    """Arguments of ``nn.Upsample``; factors near those at which floor, or float32, decides."""
    mode = draw(st.sampled_from(MODES[dims]))
    found: dict[str, Any] = {"mode": mode}
    if "linear" in mode or mode == "bicubic":
        found["align_corners"] = draw(st.booleans())
    factor = st.one_of(st.sampled_from(FACTORS), st.floats(0.3, 3.5), st.floats(0.999999, 1.000001))
    if draw(st.booleans()):
        found["size"] = tuple(draw(st.integers(2, 24)) for _ in range(dims))
    else:
        one = draw(factor)
        found["scale_factor"] = draw(st.sampled_from([one, tuple(draw(factor) for _ in range(dims))]))
        found["recompute_scale_factor"] = draw(st.sampled_from([None, False, True]))
    return found


def fits(arguments: dict[str, Any], sample: tuple[int, ...], ranks: dict[int, int]) -> bool:
    """Whether torch takes the layer, and every rank has a place of its input and of its output."""
    try:
        sizes = input_sizes(nn.Sequential(nn.Upsample(**arguments)), sample)["0"]
        check_sizes("0", *sizes, {dim: ThreadAxis(ThreadWorld(size), 0) for dim, size in ranks.items()})
    except (InputError, RuntimeError):
        return False
    return all(size > 0 for size in sizes[1]) and not torn(arguments, sample)


def torn(arguments: dict[str, Any], sample: tuple[int, ...]) -> bool:
    """Whether the split form refuses what torch itself gives a gradient of other inputs."""
    try:
        resamplings(nn.Upsample(**arguments), sample[1:])
    except InputError:
        return True
    return False


def test_a_factor_that_leaves_nothing_of_a_sample_is_bad_input() -> None:
    arguments = {"mode": "bicubic", "scale_factor": (3.5, 0.3), "recompute_scale_factor": True}
    with pytest.raises(InputError, match="samples of 7 x 3 leave nothing after a layer of the model resized them"):
        input_sizes(nn.Sequential(nn.Upsample(**arguments)), (2, 7, 3))


@pytest.mark.slow
@TRIES
@given(st.data(), st.integers(1, 3), splits)
@example(None, 2, {2: 2}).via("the extent of a factor that leaves the size")
def test_resized_parts_are_those_of_the_whole(data: st.DataObject | None, dims: int, ranks: dict[int, int]) -> None:
    if data is None:
        arguments, sample = {"scale_factor": (1.01, 1.0000001), "mode": "bilinear"}, (2, 24, 12)
    else:
        ranks = {dim: size for dim, size in ranks.items() if dim < dims + 2} or {2: 2}
        arguments = data.draw(layers(dims))
        sample = (2, *(data.draw(st.integers(3, 30 if dims < 3 else 10)) for _ in range(dims)))
    assume(fits(arguments, sample, ranks))
    if arguments["mode"] in COPIES:
        assert_copies_are_whole(arguments, sample, ranks)
    else:
        assert_split_is_whole(lambda: nn.Upsample(**arguments), sample, ranks, tolerance=1e-13)


def assert_copies_are_whole(arguments: dict[str, Any], sample: tuple[int, ...], ranks: dict[int, int]) -> None:
    """Equal bit by bit; the gradients that are added are whole numbers, so that no order of them rounds."""
    inputs = torch.arange(float(math.prod(sample)), dtype=torch.float64).view(1, *sample)
    outputs = nn.Upsample(**arguments)(inputs)
    numbers = torch.arange(float(outputs.numel()), dtype=torch.float64).view(outputs.shape) % 1009

    def work(axes: dict[int, ThreadAxis]) -> tuple[Tensor, Tensor]:
        model = nn.Sequential(nn.Upsample(**arguments))
        split_layers(model, sample, axes)
        part = own_part(inputs, axes).clone().requires_grad_()
        found = model(part)
        found.backward(own_part(numbers, axes))
        assert part.grad is not None
        return found.detach(), part.grad

    whole = inputs.clone().requires_grad_()
    nn.Upsample(**arguments)(whole).backward(numbers)
    assert whole.grad is not None
    results, places = on_ranks(ranks, work), grid(ranks)
    assert torch.equal(assembled([each[0] for each in results], places, outputs.shape), outputs)
    assert torch.equal(assembled([each[1] for each in results], places, whole.shape), whole.grad)


def rounded_by_float32() -> list[tuple[int, float]]:
    """Sizes and factors at which the source of an output is another one in float32 than in float64."""
    found = []
    for factor in (0.1 * number for number in range(3, 50)):
        for size in range(4, 400):
            outputs = torch.arange(math.floor(size * factor), dtype=torch.float64)
            wide = (outputs * (1 / factor)).floor().clamp(max=size - 1)
            numbers = torch.arange(float(size), dtype=torch.float64).view(1, 1, -1)
            if not torch.equal(wide, nn.Upsample(scale_factor=factor)(numbers).flatten()):
                found.append((size, factor))
                break
    return found


def test_copies_where_float32_shifts_the_source() -> None:
    cases = rounded_by_float32()
    assert len(cases) > 2, "there are such sizes"
    for size, factor in cases:
        assert_copies_are_whole({"scale_factor": (factor, 1.0)}, (2, size, 3), {2: 2})


def test_a_factor_that_leaves_the_size() -> None:
    """floor(24 * 1.01) = 24: torch copies what is linear; of what is cubic only the gradient, where all sizes stay."""
    for factor, mode in ((1.01, "bilinear"), (1.01, "area"), ((1.01, 2.3), "bicubic"), ((1.04, 1.0), "bilinear")):
        layer = nn.Upsample(scale_factor=factor, mode=mode)
        assert resamplings(layer, (24, 12))[0].unchanged == (mode != "bicubic")
        assert_split_is_whole(lambda layer=layer: layer, (2, 24, 12), {2: 3})  # type: ignore[misc]
    with pytest.raises(InputError, match=r"of mode 'bicubic' with the factor 1\.01, which brings every size to itself"):
        resamplings(nn.Upsample(scale_factor=1.01, mode="bicubic"), (24, 12))


@pytest.mark.parametrize(("factor", "size", "target"), [(1.01, 24, 24), (1.0000001, 9, 9), (2.03, 10, 20)])
def test_where_torchs_gradient_is_not_that_of_its_result(factor: float, size: int, target: int) -> None:
    """Where a size stays or doubles, nearest's gradient, and its result with channels last, forget the factor."""
    arguments = {"scale_factor": (factor, 1.5, 1.5)}
    inputs = torch.arange(float(size), dtype=torch.float64).view(1, 1, -1, 1, 1).repeat(1, 4, 1, 2, 2).requires_grad_()
    outputs = nn.Upsample(**arguments)(inputs)
    assert outputs.shape[2] == target
    (gradient,) = torch.autograd.grad(outputs, inputs, torch.ones_like(outputs))
    taken = torch.bincount(outputs[0, 0, :, 0, 0].long(), minlength=size)
    last = nn.Upsample(**arguments)(inputs.detach().contiguous(memory_format=torch.channels_last_3d))
    assert not torch.equal(gradient[0, 0].sum((1, 2)), taken * 3.0 * 3), "torch has changed: it need not be refused"
    assert not torch.equal(last, outputs)
    axes = {2: ThreadAxis(ThreadWorld(2), 0)}
    words = f"layer 0: of mode 'nearest' with the factor {factor}, which brings size {size} to {target}, torch"
    with pytest.raises(InputError, match=re.escape(words)):
        split_layers(nn.Sequential(nn.Upsample(**arguments)), (1, size, 2, 2), axes)
    split_layers(nn.Sequential(nn.Upsample(**arguments, recompute_scale_factor=True)), (1, size, 2, 2), axes)
    split_layers(nn.Sequential(nn.Upsample(size=(target, 3, 3))), (1, size, 2, 2), axes)


@pytest.mark.parametrize("mode", ["bilinear", pytest.param("bicubic", marks=pytest.mark.slow)])
def test_weights_are_those_of_float32_where_the_samples_are(mode: str) -> None:
    """At place 2,000 the scale's rounding is some 1e-4 of a step of inputs, which float64 does not have."""
    torch.manual_seed(0)
    inputs, arguments = torch.randn(1, 1, 2000, 2), {"scale_factor": (2.3, 1.0), "mode": mode}

    def work(axes: dict[int, ThreadAxis]) -> Tensor:
        model = nn.Sequential(nn.Upsample(**arguments))
        split_layers(model, (1, 2000, 2), axes)
        return model(own_part(inputs, axes))

    whole = nn.Upsample(**arguments)(inputs)
    found = torch.cat(on_ranks({2: 2}, work), dim=2)
    torch.testing.assert_close(found, whole, rtol=0, atol=2e-6)
    in_double = nn.Upsample(**arguments)(inputs.double()).float()
    assert (in_double - whole).abs().max() > 2e-5


@pytest.mark.parametrize("dims", MODES)
def test_under_autocast_the_type_is_torchs_own(dims: int) -> None:
    inputs = torch.rand(1, 2, *(6, 5, 4)[:dims])
    for mode in MODES[dims]:
        with torch.autocast("cpu", torch.bfloat16):
            whole = nn.Upsample(scale_factor=2, mode=mode)(inputs.bfloat16())

        def work(axes: dict[int, ThreadAxis], mode: str = mode) -> Tensor:
            model = nn.Sequential(nn.Upsample(scale_factor=2, mode=mode))
            split_layers(model, tuple(inputs.shape[1:]), axes)
            with torch.autocast("cpu", torch.bfloat16):
                return passed(model, own_part(inputs.bfloat16(), axes), axes)[0]

        found = torch.cat(on_ranks({2: 2}, work), dim=2)
        assert found.dtype == whole.dtype, mode
        torch.testing.assert_close(found, whole, rtol=0.01, atol=0.01)


OWN_CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "interpolate": lambda x: functional.interpolate(x, scale_factor=2.0),
    "grid_sample": lambda x: functional.grid_sample(x, x.new_zeros(1, 8, 8, 2), align_corners=False),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x, 1),
    "max_pool2d": lambda x: functional.max_pool2d(x, 3, 1, 1),
    "max_pool2d_with_indices": lambda x: functional.max_pool2d(x, 3, 1, 1, return_indices=True)[0],
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
    "conv2d": lambda x: functional.conv2d(x, x.new_zeros(2, 2, 3, 3), padding=1),
    "conv1d": lambda x: torch.conv1d(x[:, :, 0], x.new_zeros(2, 2, 3)),
    "conv_transpose2d": lambda x: functional.conv_transpose2d(x, x.new_zeros(2, 2, 3, 3)),
}


@pytest.mark.parametrize("name", OWN_CALLS)
def test_a_model_that_resizes_convolves_or_pools_in_its_own_code_is_refused(name: str) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return OWN_CALLS[name](self.conv(x))

    axes = {2: ThreadAxis(ThreadWorld(2), 0)}
    words = f"calls {name} in its own code, which is not split over ranks; make it a layer "
    with pytest.raises(InputError, match=f"^the model {words}"):
        split_layers(Own(), (2, 8, 8), axes)
    with pytest.raises(InputError, match=f"^module 1 {words}"):
        split_layers(nn.Sequential(nn.ReLU(), Own()), (2, 8, 8), axes)
    split_layers(nn.Sequential(nn.ReLU(), Own()), (2, 8, 8), axes, whole=["1"])


def test_samples_with_fewer_dimensions_than_are_split() -> None:
    axes = {4: ThreadAxis(ThreadWorld(2), 0)}
    with pytest.raises(InputError, match="dimension 3 of samples is to be split, and they have 2; name at most 2 axes"):
        split_layers(nn.Sequential(nn.ReLU()), (2, 8, 8), axes)
