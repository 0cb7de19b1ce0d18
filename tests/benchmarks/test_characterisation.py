"""Counts beside the published characterisation: products of convolutions, and the tables of the page."""

from __future__ import annotations

import pytest
import torch
from _executed import SMALLEST_TILE, Product, products
from characterisation import Line, closed, main
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from hpcbench.characterisation.operations import OperationRecorder


@settings(max_examples=40)
@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 3]), st.integers(1, 2),
    st.sampled_from([6, 8]), st.booleans(),
)  # fmt: skip
def test_products_of_a_convolution_have_its_operations(
    groups: int, inputs: int, outputs: int, kernel: int, stride: int, size: int, transposed: bool
) -> None:
    x = torch.zeros(2, inputs * groups, size, size, requires_grad=True)
    shape = (inputs * groups, outputs) if transposed else (outputs * groups, inputs)
    weight = torch.zeros(*shape, kernel, kernel, requires_grad=True)
    options = {"stride": stride, "padding": kernel // 2, "groups": groups}
    with OperationRecorder() as recorder:
        if transposed:
            result = functional.conv_transpose2d(x, weight, **options, output_padding=stride - 1)
        else:
            result = functional.conv2d(x, weight, **options)
        result.backward(torch.zeros_like(result))
    forward, backward = (each for each in recorder.operations if "convolution" in each.name)
    for operation, number in ((forward, 1), (backward, 2)):
        found = products(operation)
        assert len(found) == number
        assert sum(product.flop for product in found) == operation.flop
        # What multiplies zeros is the gradient of the input, which a transposed convolution is forward.
        has_zeros = transposed == (operation is forward)
        assert max(product.stride for product in found) == (stride**2 if has_zeros else 1)


def test_what_tiles_make_of_cosmoflows_first_convolution() -> None:
    # 4 channels to 32 in 128^3 with a kernel of 3^3: 14.5 GFLOP, of which a tile makes 64 outputs and 128 inputs.
    forward = Product(128**3, 32, 4 * 27, 1, 1)
    assert forward.flop == 14_495_514_624
    assert forward.in_tiles(SMALLEST_TILE) == 2.0 * 128**3 * 64 * 128
    assert Product(128**3, 1, 27, 32, 1).in_tiles(SMALLEST_TILE) == 2.0 * 128**3 * 27 * 32


def test_zeros_between_strides() -> None:
    # DeepCAM's first doubling: 256 channels, 48 x 72 to 96 x 144.
    doubled = Product(96 * 144, 256, 256 * 9, 1, 4)
    assert doubled.flop == 2.0 * 48 * 72 * 256 * 256 * 9
    assert doubled.with_zeros == 4 * doubled.flop


def test_what_is_left_is_no_part_of_the_sum() -> None:
    lines = closed([Line("a", 2.0), Line("b", 1.5)], 4.0)
    assert [(line.what, line.value, line.counted) for line in lines[2:]] == [
        ("together", 3.5, False), ("published", 4.0, False), ("left", 0.5, False),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_page_has_the_tables_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    assert "has no line" not in capsys.readouterr().out
