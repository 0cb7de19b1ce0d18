"""Kinds, operations and least bytes of single operations, against figures by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from hpcbench.characterisation.operations import Operation, OperationRecorder

F = 4


def recorded(work: Callable[[], Any]) -> list[Operation]:
    with OperationRecorder() as recorder:
        work()
    return recorder.operations


def only(work: Callable[[], Any]) -> Operation:
    (found,) = recorded(work)
    return found


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(4, 9), st.integers(1, 2))
def test_a_convolution_and_its_backward_pass(samples: int, inputs: int, outputs: int, size: int, stride: int) -> None:
    x = torch.zeros(samples, inputs, size, size)
    weight = torch.zeros(outputs, inputs, 3, 3, requires_grad=True)
    (forward,) = recorded(lambda: functional.conv2d(x, weight, stride=stride, padding=1))
    result = functional.conv2d(x, weight, stride=stride, padding=1)
    assert (forward.kind, forward.direction) == ("convolution", "forward")
    assert forward.flop == 2 * result.numel() * inputs * 9
    assert forward.read_bytes == F * (x.numel() + weight.numel())
    assert forward.written_bytes == forward.made_bytes == F * result.numel()
    gradient = torch.zeros_like(result)
    backward = next(each for each in recorded(lambda: result.backward(gradient)) if each.kind == "convolution")
    # no gradient of the input: the weights are not read
    assert (backward.direction, backward.flop) == ("backward", forward.flop)
    assert backward.read_bytes == F * (gradient.numel() + x.numel())
    assert backward.written_bytes == F * weight.numel()


def test_a_depthwise_convolution_has_the_operations_of_its_own_channels() -> None:
    x, weight = torch.zeros(1, 8, 6, 6), torch.zeros(8, 1, 3, 3)
    found = only(lambda: functional.conv2d(x, weight, padding=1, groups=8))
    assert (found.kind, found.flop) == ("depthwise convolution", 2 * 8 * 36 * 9)


def test_what_is_in_place_is_read_and_written_and_makes_nothing() -> None:
    x = torch.zeros(10, 7)
    found = only(lambda: functional.relu_(x))
    assert (found.kind, found.flop) == ("elementwise", 70)
    assert (found.read_bytes, found.written_bytes, found.made_bytes) == (280, 280, 0)


@pytest.mark.parametrize("work", [lambda x: x.view(70), lambda x: x.t(), lambda x: x[2:], torch.empty_like])
def test_views_and_allocations_are_free(work: Callable[[Tensor], Tensor]) -> None:
    x = torch.zeros(10, 7)
    assert recorded(lambda: work(x)) == []


def test_a_maximum_pooling_does_not_read_its_input_again() -> None:
    x = torch.zeros(1, 2, 8, 8, requires_grad=True)
    (forward,) = recorded(lambda: functional.max_pool2d(x, 2))
    pooled = functional.max_pool2d(x, 2)
    assert forward.flop == pooled.numel() * 4
    assert forward.written_bytes == pooled.numel() * (F + 8)  # maxima, and int64 positions
    backward = next(each for each in recorded(pooled.sum().backward) if each.kind == "pooling")
    assert backward.read_bytes == pooled.numel() * 8 + F  # positions, and one number that stands for all gradients
    assert backward.written_bytes == F * x.numel()


def test_an_expanded_tensor_is_read_once() -> None:
    row, whole = torch.zeros(1, 1000).expand(500, 1000), torch.zeros(500, 1000)
    assert only(lambda: torch.add(whole, row)).read_bytes == F * (500_000 + 1000)


def test_a_copy_reads_its_source_alone() -> None:
    target, source = torch.zeros(5, 5), torch.zeros(5, 5, dtype=torch.bfloat16)
    found = only(lambda: target.copy_(source))
    assert (found.kind, found.flop, found.read_bytes, found.written_bytes) == ("copy", 0, 50, 100)
    assert found.precision == "bfloat16"


def test_batch_norm_reads_its_input_and_four_vectors() -> None:
    norm = torch.nn.BatchNorm2d(6)
    x = torch.zeros(2, 6, 4, 4)
    found = next(each for each in recorded(lambda: norm(x)) if each.kind == "batch norm")
    assert found.flop == 8 * x.numel()
    assert found.read_bytes == F * (x.numel() + 4 * 6)
    assert found.written_bytes == F * (x.numel() + 2 * 6)


def test_losses_and_sums_have_kinds() -> None:
    logits, target = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    kinds = {each.name: each.kind for each in recorded(lambda: functional.cross_entropy(logits, target))}
    assert set(kinds.values()) == {"loss"}
    assert only(logits.sum).kind == "reduction"
