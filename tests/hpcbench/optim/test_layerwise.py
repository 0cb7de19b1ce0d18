"""LARS and LAMB against their papers' formulas, against an independent implementation, and at their edges."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_optimizer import LARS as OTHER_LARS
from pytorch_optimizer import Lamb as OtherLamb
from torch import Tensor, nn

from hpcbench.config.optimizers import OPTIMIZERS
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.clip import clip_gradients
from hpcbench.optim.lamb import LAMB
from hpcbench.optim.lars import LARS
from hpcbench.optim.registry import create_optimizer, set_learning_rate
from staging.errors import InputError
from tests.hpcbench.optim import formulas
from tests.params import slow_except

SHAPES = ((3, 4), (5,), (2, 3, 2, 2), (1,))
BOTH = (LARS, LAMB)
LAYERWISE = ("lars", "larc", "lamb", "nvlamb")


def tensors(seed: int = 0, shapes: tuple[tuple[int, ...], ...] = SHAPES, dtype: torch.dtype = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def run(
    optimizer: torch.optim.Optimizer, weights: Sequence[Tensor], steps: int = 7, scale: float = 1.0,
    before: Callable[[int], None] = lambda step: None,
) -> None:  # fmt: skip
    """Steps with random gradients that are the same for every optimizer; ``before`` gets the number from 1 on."""
    for number in range(steps):
        before(number + 1)
        for weight, gradient in zip(weights, tensors(100 + number), strict=True):
            weight.grad = gradient.to(weight) * scale
        optimizer.step()


def parameters(like: Sequence[Tensor]) -> list[nn.Parameter]:
    return [nn.Parameter(weight.clone()) for weight in like]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.05, "momentum": 0.5},
        {"weight_decay": 0.05, "nesterov": True, "eps": 0.5},
        {"clip_rate": True, "trust_coefficient": 0.3, "weight_decay": 0.01},
        {"trust_bounds": (0.4, 0.5), "trust_coefficient": 1.0},
    ],
)
def test_lars_is_the_formula_of_the_paper(options: dict[str, Any]) -> None:
    start = tensors()
    weights = parameters(start)
    run(LARS(weights, lr=0.7, **options), weights)
    bounds = {"bounds": options["trust_bounds"]} if "trust_bounds" in options else {}
    options = {key: value for key, value in options.items() if key != "trust_bounds"} | bounds
    for index, weight in enumerate(weights):
        expected, state = start[index], formulas.State()
        for number in range(7):
            expected = formulas.lars(expected, tensors(100 + number)[index], state, lr=0.7, **options)
        assert torch.allclose(weight, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.05, "betas": (0.5, 0.9), "eps": 0.1},
        {"bias_correction": False, "weight_decay": 0.01},
        {"grad_averaging": False},
        {"grad_averaging": False, "bias_correction": False, "weight_decay": 0.3},
        {"trust_bounds": (0.9, 1.1)},
    ],
)
def test_lamb_is_the_formula_of_the_paper(options: dict[str, Any]) -> None:
    start = tensors()
    weights = parameters(start)
    run(LAMB(weights, lr=0.02, **options), weights)
    bounds = {"bounds": options["trust_bounds"]} if "trust_bounds" in options else {}
    options = {key: value for key, value in options.items() if key != "trust_bounds"} | bounds
    for index, weight in enumerate(weights):
        expected, state = start[index], formulas.State()
        for number in range(7):
            expected = formulas.lamb(expected, tensors(100 + number)[index], state, number + 1, lr=0.02, **options)
        assert torch.allclose(weight, expected, rtol=1e-12, atol=1e-14)


def test_two_steps_of_closed_division_lamb_in_plain_numbers() -> None:
    """One weight: the first step is lr * |w| in size whatever the gradient; the second is computed by hand."""
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = create_optimizer(OptimConfig(name="nvlamb", lr=0.1, weight_decay=0.01), [{"params": [weight]}], "cpu")
    weight.grad = torch.tensor([5.0], dtype=torch.float64)
    optimizer.step()
    assert weight.item() == pytest.approx(2 - 0.1 * 2, rel=1e-15)
    weight.grad = torch.tensor([-0.5], dtype=torch.float64)
    optimizer.step()
    # The first gradient was clipped to 1, the second is below 1 and stays.
    first = (0.9 * 0.1 * 1 - 0.1 * 0.5) / (1 - 0.81)
    second = (0.999 * 0.001 * 1 + 0.001 * 0.25) / (1 - 0.999**2)
    update = first / (math.sqrt(second) + 1e-6) + 0.01 * 1.8
    assert weight.item() == pytest.approx(1.8 - 0.1 * (1.8 / abs(update)) * update, rel=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_lars_agrees_with_an_independent_one_over_many_steps(nesterov: bool) -> None:
    start = tensors()
    ours, theirs = parameters(start), parameters(start)
    vectors = [weight for weight in ours if weight.ndim < 2]
    groups = [
        {"params": [weight for weight in ours if weight.ndim > 1], "weight_decay": 0.02},
        {"params": vectors, "adapt": False},
    ]
    options = {"momentum": 0.9, "trust_coefficient": 0.01, "nesterov": nesterov}
    run(LARS(groups, lr=0.3, **options), ours, 200)
    run(OTHER_LARS(theirs, lr=0.3, weight_decay=0.02, **options), theirs, 200)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("scale", "tolerance"), [(0.01, 1e-9), (10.0, 1e-6)])
def test_lamb_agrees_with_an_independent_one_over_many_steps(
    scale: float, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It bounds the norm of the weights at 10, adds eps to each norm, divides the rate by 1 - beta1^t, and keeps the
    # global norm, which counts above 1, in float32.
    monkeypatch.setattr(OtherLamb, "clamp", float("inf"))
    start = tensors()
    ours, theirs = parameters(start), parameters(start)
    options = {"lr": 0.01, "weight_decay": 0.02, "eps": 1e-14}
    optimizer = LAMB(ours, bias_correction=False, max_grad_norm=1.0, **options)
    run(optimizer, ours, 200, scale, lambda t: set_learning_rate(optimizer, 0.01 / (1 - 0.9**t)))
    run(OtherLamb(theirs, weight_decouple=False, pre_norm=True, **options), theirs, 200, scale)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance / 100)


@pytest.mark.parametrize("kind", BOTH)
def test_zero_weights_and_zero_gradients_take_the_plain_rate(kind: type[LARS] | type[LAMB]) -> None:
    zero, resting = nn.Parameter(torch.zeros(4, dtype=torch.float64)), nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimizer = kind([zero, resting], lr=0.25)
    optimizer.record = True
    zero.grad, resting.grad = torch.full_like(zero, 2.0), torch.zeros_like(resting)
    optimizer.step()
    assert torch.cat([ratios for _, ratios in optimizer.recorded]).tolist() == [1.0, 1.0]
    assert zero.tolist() == pytest.approx([-0.5] * 4 if kind is LARS else [-0.25] * 4, rel=1e-6)
    assert resting.tolist() == [1.0] * 4


@pytest.mark.parametrize("kind", BOTH)
def test_an_empty_group_an_empty_tensor_and_a_missing_gradient_change_nothing(kind: Any) -> None:
    weight, without, empty = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(0, 2))
    optimizer = kind([{"params": [weight, without, empty]}, {"params": []}], lr=0.1, max_grad_norm=1.0)
    weight.grad, empty.grad = torch.ones(3), torch.ones(0, 2)
    optimizer.step()
    assert (weight != 1).all()
    assert (without == 1).all()
    assert without not in optimizer.state
    kind([{"params": []}], lr=0.1, max_grad_norm=1.0).step()


@pytest.mark.parametrize("kind", BOTH)
def test_sparse_gradients_and_complex_parameters_are_refused_in_one_line(kind: Any) -> None:
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = kind(table.parameters())
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(
        InputError, match=rf"^{kind.__name__} takes dense gradients, not a sparse one of shape \(4, 2\)"
    ):
        optimizer.step()
    with pytest.raises(InputError, match=rf"^{kind.__name__} takes real parameters, not a complex one of shape \(3,\)"):
        kind([nn.Parameter(torch.ones(3, dtype=torch.complex64))])


@pytest.mark.parametrize("name", slow_except(["lamb", "lars", "sgd"], sorted(OPTIMIZERS)))
def test_rosenbrock_is_brought_far_down(name: str) -> None:
    rates = {"sgd": 1e-3, "adam": 0.05, "adamw": 0.05, "lars": 10.0, "larc": 0.02, "lamb": 0.1, "nvlamb": 0.02}
    point = nn.Parameter(torch.tensor([-1.5, 2.0], dtype=torch.float64))
    options: dict[str, Any] = {"adapt_exclude": []} if name in LAYERWISE else {}
    config = OptimConfig(name=name, lr=rates[name], **options)
    optimizer = create_optimizer(config, [{"params": [point]}], "cpu")

    def value() -> Tensor:
        return (1 - point[0]) ** 2 + 100 * (point[1] - point[0] ** 2) ** 2

    first = float(value().detach())
    for step in range(1500):
        set_learning_rate(optimizer, rates[name] * 0.5 * (1 + math.cos(math.pi * step / 1500)))
        optimizer.zero_grad()
        value().backward()
        optimizer.step()
    assert float(value().detach()) < 0.01 * first


@pytest.mark.parametrize("name", LAYERWISE)
def test_layers_in_channels_last_strides_with_gradients_in_others_are_the_same(name: str) -> None:
    def train(layout: torch.memory_format, moved: bool) -> Tensor:
        weight = nn.Parameter(tensors(3, ((4, 3, 5, 5),))[0].contiguous(memory_format=layout))
        optimizer = create_optimizer(OptimConfig(name=name, lr=0.1, weight_decay=0.1), [{"params": [weight]}], "cpu")
        for number in range(4):
            gradient = tensors(50 + number, ((4, 3, 5, 5),))[0]
            weight.grad = gradient.contiguous() if moved else gradient.contiguous(memory_format=layout)
            optimizer.step()
            if number == 1:
                # A loaded state in another layout must not be mixed up either.
                state = copy.deepcopy(optimizer.state_dict())
                for values in state["state"].values():
                    values.update({k: v.contiguous() for k, v in values.items() if v.ndim == 4})
                optimizer.load_state_dict(state)
        return weight.detach()

    plain = train(torch.contiguous_format, moved=False)
    for moved in (False, True):
        assert torch.allclose(train(torch.channels_last, moved), plain, rtol=1e-12)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_clipping_outside_or_inside_gives_the_same_numbers(kind: Any, scale: float) -> None:
    inside, outside = parameters(tensors()), parameters(tensors())
    within, plain = kind(inside, max_grad_norm=0.7), kind(outside)
    for number in range(4):
        gradients = tensors(100 + number)
        for one, other, gradient in zip(inside, outside, gradients, strict=True):
            one.grad, other.grad = gradient * scale, gradient * scale
        norm = math.sqrt(sum(float((gradient * scale).square().sum()) for gradient in gradients))
        assert float(clip_gradients(outside, 0.7)) == pytest.approx(norm, rel=1e-12)
        clipped = math.sqrt(sum(float(weight.grad.square().sum()) for weight in outside))  # type: ignore[union-attr]
        assert clipped == pytest.approx(min(norm, 0.7), rel=1e-12)
        within.step()
        plain.step()
    assert all(torch.equal(one, other) for one, other in zip(inside, outside, strict=True))


@pytest.mark.parametrize("kind", BOTH)
def test_the_norm_is_of_all_groups_before_any_of_them_is_divided(kind: Any) -> None:
    """One group is clipped and one is not; the gradients of both come scaled."""
    scaled, plain = parameters(tensors(dtype=torch.float32)), parameters(tensors(dtype=torch.float32))
    made = []
    for weights in (scaled, plain):
        groups = [{"params": weights[:2]}, {"params": weights[2:], "max_grad_norm": 0.5}]
        made.append(kind(groups, lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for weight, other, gradient in zip(scaled, plain, tensors(100), strict=True):
        scaler.scale((weight * gradient.float()).sum()).backward()
        other.grad = gradient.float()
    scaler.step(made[0])
    made[1].step()
    for one, other in zip(scaled, plain, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 20))
def test_every_parameter_is_in_one_bucket_and_buckets_hold_no_more_than_they_should(
    sizes: list[int], room: int
) -> None:
    from unittest.mock import patch

    from hpcbench.optim import tensors as module

    weights = [torch.zeros(size, dtype=torch.float32 if size % 2 else torch.float64) for size in sizes]
    with patch.object(module, "HOST_BUCKET", room):
        parts = list(module.buckets(weights))
    assert [weight for part in parts for weight in range(part.start, part.stop)] == list(range(len(weights)))
    for part in parts:
        assert part.stop - part.start == 1 or sum(sizes[part]) <= room
        assert len({weight.dtype for weight in weights[part]}) == 1
