"""Every layer, split over ranks, computes what it computes whole: layers, sizes and splits drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch import nn

from hpcbench.parallel.spatial.layers import check_sizes, input_sizes
from staging.errors import InputError

from .whole import assert_split_is_whole

TRIES = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
splits = st.one_of(
    st.integers(2, 4).map(lambda n: {2: n}),
    st.tuples(st.integers(2, 3), st.integers(2, 2)).map(lambda n: {2: n[0], 3: n[1]}),
    st.integers(2, 3).map(lambda n: {3: n}),
)


def fits(model: nn.Module, sample: tuple[int, ...], ranks: dict[int, int]) -> bool:
    """Whether torch takes the layer, and every rank has a place of its input and of its output."""
    try:
        sizes = input_sizes(nn.Sequential(model), sample)["0"]
        check_sizes("0", *sizes, {dim: type("Size", (), {"size": size})() for dim, size in ranks.items()})
    except (InputError, RuntimeError):
        return False
    return all(size > 0 for size in sizes[1])


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
