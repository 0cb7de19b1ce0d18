"""LAMB's compiled loops on a processor take the steps of the formulas, whole or in pieces, on one thread or more."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hpcbench.config.schema import OptimConfig
from hpcbench.optim import bucket, lamb
from hpcbench.optim.lamb import LAMB
from hpcbench.optim.registry import create_optimizer
from tests.hpcbench.optim import formulas
from tests.hpcbench.optim.compiled_loops import compiled_for, loops_to_compile

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("numba"), reason="needs numba (pip install numba)")

SHAPES = ((40, 3), (5,), (0, 2), (7, 3, 2, 2), (1,))
SETS: dict[str, dict[str, Any]] = {
    "plain": {},
    "decayed": {"weight_decay": 0.05, "betas": (0.5, 0.9), "eps": 0.1},
    "uncorrected": {"bias_correction": False, "weight_decay": 0.01},
    "a sum": {"grad_averaging": False, "weight_decay": 0.3},
    "clipped": {"max_grad_norm": 0.7, "weight_decay": 0.05},
}


WAYS = {"one thread": (1, True), "three threads": (3, True), "as parts of tensors": (1, False)}


@pytest.fixture(params=WAYS, autouse=True)
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The loops for small layers too, in pieces of 16 elements and chunks of 100; what they worked on, by buckets."""
    from hpcbench.optim import lamb_numba

    threads, whole = WAYS[request.param]
    monkeypatch.setattr(lamb, "COMPILED_FROM", 0)
    monkeypatch.setattr(bucket, "PIECE", 16)
    monkeypatch.setattr(lamb_numba, "CHUNK", 100)
    if not whole:  # as where parameters are sharded
        monkeypatch.setattr(LAMB, "steps_by_chunks", lambda optimizer, parameter: False)
    used: list[int] = []
    name = "step" if whole else "directions"
    original = getattr(lamb_numba, name)

    def work(part: bucket.Bucket, *more: Any) -> Tensor:
        used.append(part.elements)
        found: Tensor = original(part, *more)
        return found

    monkeypatch.setattr(lamb_numba, name, work)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield used
    torch.set_num_threads(before)


def tensors(seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def channels_last(tensor: Tensor) -> Tensor:
    """The same in the layout that convolutions prefer."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor.clone()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("options", SETS.values(), ids=SETS.keys())
def test_steps_are_those_of_the_formula(options: dict[str, Any], dtype: torch.dtype, compiled: list[int]) -> None:
    start = tensors(0)
    weights = [nn.Parameter(channels_last(weight.to(dtype))) for weight in start]
    optimizer = LAMB(weights, lr=0.02, **options)
    for number in range(7):
        for weight, gradient in zip(weights, tensors(100 + number, dtype), strict=True):
            weight.grad = gradient
        optimizer.step()
    assert len(compiled) == 7

    options = dict(options)
    largest = options.pop("max_grad_norm", math.inf)
    expected, states = list(start), [formulas.State() for _ in start]
    for number in range(7):
        gradients = tensors(100 + number)
        over = max(1.0, math.sqrt(sum(float(each.square().sum()) for each in gradients)) / largest)
        expected = [
            formulas.lamb(weight, gradient / over, state, number + 1, lr=0.02, **options)
            for weight, gradient, state in zip(expected, gradients, states, strict=True)
        ]
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    for weight, other in zip(weights, expected, strict=True):
        assert torch.allclose(weight.double(), other, rtol=tolerance, atol=tolerance / 10)
    share = 1.0 if options.get("grad_averaging", True) else 1 - optimizer.param_groups[0]["betas"][0]
    for weight, state in zip(weights, states, strict=True):
        kept = optimizer.state[weight]
        assert torch.allclose(kept["exp_avg"].double(), share * state["m"], rtol=tolerance, atol=tolerance / 10)
        assert torch.allclose(kept["exp_avg_sq"].double(), state["v"], rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("options", SETS.values(), ids=SETS.keys())
def test_a_checkpoint_is_continued_where_numba_is_missing(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine, or a smaller part of the model: the moments mean the same in all implementations."""

    def steps(optimizer: LAMB, numbers: range) -> None:
        for number in numbers:
            for weight, gradient in zip(optimizer.param_groups[0]["params"], tensors(100 + number), strict=True):
                weight.grad = gradient
            optimizer.step()

    one, other = ([nn.Parameter(weight.clone()) for weight in tensors(0)] for _ in range(2))
    first, second = (LAMB(weights, lr=0.02, **options) for weights in (one, other))
    steps(first, range(6))
    steps(second, range(3))
    monkeypatch.setattr(lamb, "compiled_loops", lambda: None)
    third = LAMB(other, lr=0.02, **options)
    third.load_state_dict(second.state_dict())
    steps(third, range(3, 6))
    for weight, expected in zip(other, one, strict=True):
        assert torch.allclose(weight, expected, rtol=1e-12, atol=1e-13)


def test_gradients_stay_as_they_are_though_the_step_divides_them() -> None:
    weights = [nn.Parameter(weight.float()) for weight in tensors(0)]
    given = tensors(1, torch.float32)
    for weight, gradient in zip(weights, given, strict=True):
        weight.grad = gradient.clone()
    LAMB(weights, lr=0.1, max_grad_norm=0.01).step()
    for weight, gradient in zip(weights, given, strict=True):
        assert weight.grad is not None
        assert torch.equal(weight.grad, gradient)


def test_a_gradient_that_is_infinite_is_not_hidden() -> None:
    weight = nn.Parameter(torch.ones(40))
    weight.grad = torch.full((40,), math.inf)
    LAMB([weight], lr=0.1).step()
    assert weight.isnan().all()


def test_moved_weights_are_found_again_and_groups_have_rates_of_their_own(compiled: list[int]) -> None:
    """Two groups, one of them frozen at first, whose memory is another after two steps."""
    moving, still = (nn.Parameter(torch.full((40,), 2.0, dtype=torch.float64)) for _ in range(2))
    optimizer = LAMB([{"params": [moving]}, {"params": [still], "lr": 0.0}], lr=0.1)
    for number in range(4):
        if number == 2:
            moving.data = moving.data.clone()
        moving.grad, still.grad = torch.full_like(moving, 3.0), torch.full_like(still, 3.0)
        optimizer.step()
    assert compiled == [40, 40] * 4
    # Each step is lr * |w| long, against the gradient.
    assert torch.allclose(moving, torch.full_like(moving, 2 * 0.9**4), rtol=1e-6)
    assert torch.equal(still, torch.full_like(still, 2.0))


def test_other_types_take_the_way_without_compiled_loops(compiled: list[int]) -> None:
    weight = nn.Parameter(torch.ones(40, dtype=torch.bfloat16))
    weight.grad = torch.ones_like(weight)
    LAMB([weight], lr=0.25).step()
    assert not compiled
    assert torch.equal(weight, torch.full_like(weight, 0.75))


def test_small_models_are_not_worth_compiling_for(monkeypatch: pytest.MonkeyPatch, compiled: list[int]) -> None:
    monkeypatch.setattr(lamb, "COMPILED_FROM", 81)
    for size in (40, 41):
        weights = [nn.Parameter(torch.ones(40)), nn.Parameter(torch.ones(size))]
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        LAMB(weights, lr=0.25).step()
    assert compiled == [81]


@pytest.mark.slow
@pytest.mark.parametrize("largest", [0.0, 1.0], ids=["lamb", "clipped"])
def test_what_is_compiled_ahead_is_what_steps_use(
    largest: float, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For two types and two groups; the weights do not change, and nothing that is not used is compiled."""
    loops = loops_to_compile(monkeypatch)
    weights = [nn.Parameter(torch.full((40,), 2.0, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    optimizer = LAMB([{"params": [each]} for each in weights], lr=0.1, max_grad_norm=largest)
    assert optimizer.compile_loops()
    whole = optimizer.steps_by_chunks(weights[0])
    ahead = compiled_for(loops)
    used = ["first_loop", "second_loop", *(["trust"] if whole else []), *(["norm_loop"] if largest else [])]
    assert ahead == dict.fromkeys(used, 2)
    assert all(torch.equal(each, torch.full_like(each, 2.0)) for each in weights)
    assert not optimizer.state
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert compiled_for(loops) == ahead
    assert not any(torch.equal(each, torch.full_like(each, 2.0)) for each in weights)


def test_nothing_is_compiled_ahead_that_no_step_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = loops_to_compile(monkeypatch)
    assert not LAMB([nn.Parameter(torch.ones(40, dtype=torch.bfloat16))]).compile_loops()
    frozen = nn.Parameter(torch.ones(9), requires_grad=False)
    monkeypatch.setattr(lamb, "COMPILED_FROM", 41)
    assert not LAMB([nn.Parameter(torch.ones(40)), frozen]).compile_loops()
    assert compiled_for(loops) == {}


def test_layers_of_a_model_are_one_bucket_and_u_takes_the_memory_of_a_turn(
    monkeypatch: pytest.MonkeyPatch, compiled: list[int]
) -> None:
    from hpcbench.optim import tensors as module

    monkeypatch.setattr(module, "HOST_BUCKET", 50)
    weights = [nn.Parameter(torch.ones(size)) for size in (40, 30, 0, 30, 1, 150, 99, 1)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = LAMB(weights, lr=0.25)
    optimizer.step()
    chunked = optimizer.steps_by_chunks(weights[0])
    assert compiled == ([351] if chunked else [40, 30, 31, 150, 99, 1])
    assert optimizer._room.numel() == 150
    assert all(torch.equal(weight, torch.full_like(weight, 0.75)) for weight in weights)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 150), max_size=12))
def test_every_layer_is_in_one_chunk_and_chunks_are_no_larger_than_they_should(sizes: list[int]) -> None:
    from hpcbench.optim import lamb_numba

    found = list(lamb_numba.chunks(sizes))
    assert [layer for start, stop in found for layer in range(start, stop)] == list(range(len(sizes)))
    assert all(stop - start == 1 or sum(sizes[start:stop]) <= lamb_numba.CHUNK for start, stop in found)


@pytest.mark.parametrize("name", ["lamb", "nvlamb"])
def test_recorded_ratios_are_those_of_the_layers(name: str) -> None:
    """The first step of LAMB with eps 0 goes by the sign of the gradient, so that |u| is known: sqrt(elements)."""
    weights = [nn.Parameter(torch.full((size,), 3.0, dtype=torch.float64)) for size in (40, 90, 0, 20)]
    for weight in weights:
        weight.grad = torch.full_like(weight, -0.5)
    config = OptimConfig(name=name, eps=0.0, weight_decay=0.5, trust_bounds=(0.0, 10.0))
    optimizer = create_optimizer(config, [{"params": weights}], "cpu")
    optimizer.record = True  # type: ignore[attr-defined]
    optimizer.step()
    ratios = torch.cat([ratios for _, ratios in optimizer.recorded])  # type: ignore[attr-defined]
    # u = -1 + 0.5 * 3
    assert ratios.tolist() == pytest.approx([6.0, 6.0, 1.0, 6.0], rel=1e-12)
