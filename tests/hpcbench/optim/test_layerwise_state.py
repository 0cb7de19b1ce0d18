"""Layer-wise optimizers in use: state through files, a rate in a tensor, and the gradient scaler."""

from __future__ import annotations

import copy
import importlib.util
import io
import multiprocessing
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hpcbench.config.schema import OptimConfig
from hpcbench.optim import lamb
from hpcbench.optim.bucket import Bucket
from hpcbench.optim.lamb import LAMB
from hpcbench.optim.lars import LARS
from hpcbench.optim.registry import create_optimizer, load_optimizer_state, set_learning_rate
from staging.errors import InputError
from tests.hpcbench.optim.test_layerwise import BOTH, LAYERWISE, parameters, run, tensors


@pytest.mark.parametrize("name", LAYERWISE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_state_goes_through_a_file_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    start = tensors(dtype=dtype)
    weights = parameters(start)
    config = OptimConfig(name=name, lr=0.05, weight_decay=0.01)
    optimizer = create_optimizer(config, [{"params": weights}], "cpu")
    run(optimizer, weights, 3)
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "weights": weights}, file)
    file.seek(0)
    found = torch.load(file, weights_only=True)
    again = create_optimizer(config, [{"params": found["weights"]}], "cpu")
    again.load_state_dict(found["optimizer"])
    run(optimizer, weights)
    run(again, found["weights"])
    assert all(torch.equal(one, other) for one, other in zip(weights, found["weights"], strict=True))
    assert all(weight.dtype == dtype and weight.isfinite().all() for weight in weights)


LARS_CLIPS, LARS_DOES_NOT = "LARC (clip_rate true)", "LARS (clip_rate false)"
NV_LAMB, PLAIN_LAMB = "NVLAMB (always_adapt false, max_grad_norm 1.0)", "LAMB (always_adapt true, max_grad_norm 0.0)"


@pytest.mark.parametrize(
    ("saved", "other", "has", "asked"),
    [
        ({"name": "larc"}, {"name": "lars"}, LARS_CLIPS, LARS_DOES_NOT),
        ({"name": "lars"}, {"name": "larc"}, LARS_DOES_NOT, LARS_CLIPS),
        ({"name": "nvlamb"}, {"name": "lamb"}, NV_LAMB, PLAIN_LAMB),
        ({"name": "lamb"}, {"name": "nvlamb"}, PLAIN_LAMB, NV_LAMB),
        (
            {"name": "nvlamb", "always_adapt": True}, {"name": "lamb"},
            "LAMB (max_grad_norm 1.0)", "LAMB (max_grad_norm 0.0)",
        ),
    ],
)  # fmt: skip
def test_the_state_of_a_variant_is_refused(saved: Any, other: Any, has: str, asked: str) -> None:
    weights = parameters(tensors())
    optimizers = [create_optimizer(OptimConfig(lr=0.05, **options), [{"params": weights}], "cpu")
                  for options in (saved, other)]  # fmt: skip
    run(optimizers[0], weights)
    before = dict(optimizers[1].param_groups[0])
    expected = (
        f"{asked.partition(' ')[0]}: group 0 of the loaded state is of {has}, and this optimizer is {asked}; "
        "load the state of the same optimizer"
    )
    for load in (optimizers[1].load_state_dict, partial(load_optimizer_state, optimizers[1])):
        with pytest.raises(InputError) as caught:
            load(optimizers[0].state_dict())
        assert str(caught.value) == expected
    assert optimizers[1].param_groups[0] == before
    assert not optimizers[1].state


@pytest.mark.parametrize("name", LAYERWISE)
def test_a_state_whose_options_changed_along_the_training_is_taken_with_them(name: str) -> None:
    weights = parameters(tensors())
    config = OptimConfig(name=name, lr=0.05, max_grad_norm=1.0)
    optimizer, again = (create_optimizer(config, [{"params": weights}], "cpu") for _ in range(2))
    changed = {"lr": 0.01, "weight_decay": 0.1, "trust_bounds": (0.0, 10.0), "max_grad_norm": 2.0, "nesterov": True}
    changed = {key: value for key, value in changed.items() if key in optimizer.param_groups[0]}
    optimizer.param_groups[0].update(changed)
    again.load_state_dict(optimizer.state_dict())
    assert {key: again.param_groups[0][key] for key in changed} == changed


def through_torch_save(optimizer: torch.optim.Optimizer) -> Any:
    """The optimizer itself, not its ``state_dict``: what only a user's own file may hold."""
    file = io.BytesIO()
    torch.save(optimizer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
    "torch.save": through_torch_save,
    "a copy of a copy": lambda optimizer: copy.deepcopy(pickle.loads(pickle.dumps(optimizer))),
}


@pytest.fixture(params=["host", "numba", "foreach"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What does the work of a step; Triton's kernels have a test of their own, in ``test_triton``."""
    kind: str = request.param
    if kind == "numba" and not importlib.util.find_spec("numba"):
        pytest.skip("needs numba (pip install numba)")
    if kind != "numba":
        monkeypatch.setattr(lamb, "compiled_loops", lambda: None)
    monkeypatch.setattr(lamb, "COMPILED_FROM", 0)
    if kind == "foreach":
        monkeypatch.setattr(Bucket, "on_host", False)
    return kind


def grouped(name: str) -> tuple[torch.optim.Optimizer, list[torch.nn.Parameter]]:
    """An optimizer with two groups, clipping at work, and a rate in a tensor."""
    weights = parameters(tensors(dtype=torch.float32))
    weights[2].data = weights[2].data.contiguous(memory_format=torch.channels_last)
    config = OptimConfig(name=name, lr=0.05, weight_decay=0.01, max_grad_norm=0.5)
    groups: list[dict[str, Any]] = [{"params": weights[:2]}, {"params": weights[2:], "weight_decay": 0.1}]
    return create_optimizer(config, groups, "cpu", capturable=True), weights


@pytest.mark.parametrize("name", LAYERWISE)
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_takes_the_steps_of_the_original_bit_for_bit(name: str, way: str, kernels: str) -> None:
    straight, expected = grouped(name)
    run(straight, expected, 3)
    optimizer, weights = grouped(name)
    run(optimizer, weights, 3)
    made = COPIES[way](optimizer)
    copied = [parameter for group in made.param_groups for parameter in group["params"]]
    for each in (straight, optimizer, made):
        set_learning_rate(each, 0.03)
    for each, parameters_ in ((straight, expected), (made, copied), (optimizer, weights)):
        run(each, parameters_, 4)
    for one, other, original in zip(expected, copied, weights, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, original)
        assert other.data_ptr() != original.data_ptr()
        for key, value in straight.state[one].items():
            assert torch.equal(value, made.state[other][key])
            assert made.state[other][key].data_ptr() != optimizer.state[original][key].data_ptr()


def steps_of_another_process(optimizer: torch.optim.Optimizer, answers: Any) -> None:
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    run(optimizer, weights, 4)
    answers.put([weight.tolist() for weight in weights])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lars", "nvlamb"])
def test_a_started_process_takes_the_steps_of_the_original(name: str) -> None:
    optimizer, weights = grouped(name)
    run(optimizer, weights, 3)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=steps_of_another_process, args=(copy.deepcopy(optimizer), answers))
    process.start()
    found = answers.get(timeout=120)
    process.join(120)
    run(optimizer, weights, 4)
    assert found == [weight.tolist() for weight in weights]


def test_state_memory_is_that_of_adamw() -> None:
    weights = parameters(tensors())
    optimizers = [LAMB(weights), torch.optim.AdamW(weights, fused=True)]
    sizes = []
    for optimizer in optimizers:
        run(optimizer, weights, 1)
        sizes.append(sum(value.nbytes for state in optimizer.state.values() for value in state.values()))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", LAYERWISE)
def test_a_rate_in_a_tensor_is_the_same(name: str) -> None:
    found = []
    for capturable in (False, True):
        weights = parameters(tensors())
        optimizer = create_optimizer(OptimConfig(name=name), [{"params": weights}], "cpu", capturable=capturable)
        for rate in (0.5, 0.25):
            set_learning_rate(optimizer, rate)
            run(optimizer, weights, 1)
        found.append(weights)
    assert all(torch.allclose(one, other, rtol=1e-7) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("kind", BOTH)
def test_the_scaler_divides_and_an_overflow_changes_nothing(kind: Any) -> None:
    start = tensors(dtype=torch.float32)
    plain, scaled = parameters(start), parameters(start)
    options = {"lr": 0.1, "weight_decay": 0.01, "max_grad_norm": 1.0}
    reference, optimizer = kind(plain, **options), kind(scaled, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for number in range(4):
        if number == 2:
            before = [weight.detach().clone() for weight in scaled]
            state = copy.deepcopy(optimizer.state_dict()["state"])
            loss = sum((weight * float("inf")).sum() for weight in scaled)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            assert all(torch.equal(one, other) for one, other in zip(scaled, before, strict=True))
            for one, other in zip(state.values(), optimizer.state_dict()["state"].values(), strict=True):
                assert all(torch.equal(one[key], other[key]) for key in one)
        for weight, other, gradient in zip(plain, scaled, tensors(100 + number), strict=True):
            weight.grad = gradient.float()
            other.grad = None
            scaler.scale((other * gradient.float()).sum()).backward()
        reference.step()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512.0
    for one, other in zip(plain, scaled, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", BOTH)
def test_a_verdict_on_the_device_leaves_all_as_it_was_without_being_asked(kind: Any) -> None:
    """What an accelerator takes: the verdict stays a tensor there. Here a tensor on the host stands for it."""
    weights = parameters(tensors(dtype=torch.float32))
    optimizer = kind(weights, lr=0.1, weight_decay=0.1, **({"nesterov": True} if kind is LARS else {}))
    run(optimizer, weights, 2)
    before = [weight.detach().clone() for weight in weights]
    state = copy.deepcopy(optimizer.state_dict()["state"])
    for weight in weights:
        weight.grad = torch.full_like(weight, float("nan"))
    with torch.no_grad():
        for bucket in optimizer.buckets(torch.ones(())):
            optimizer.update(bucket)
    assert all(torch.equal(one, other) for one, other in zip(weights, before, strict=True))
    for one, other in zip(state.values(), optimizer.state_dict()["state"].values(), strict=True):
        assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("kind", BOTH)
def test_gradients_that_are_dropped_after_a_step_leave_memory(kind: Any) -> None:
    weights = parameters(tensors(dtype=torch.float32))
    optimizer = kind(weights, lr=0.1, weight_decay=0.1, max_grad_norm=0.01)
    for number in range(2):
        for weight, gradient in zip(weights, tensors(number), strict=True):
            weight.grad = gradient.float()
        held = [StorageWeakRef(weight.grad.untyped_storage()) for weight in weights]
        optimizer.step()
        del gradient
        assert not any(each.expired() for each in held)
        optimizer.zero_grad(set_to_none=True)
        assert all(each.expired() for each in held)
