"""Layer-wise optimizers in use: state through files, a rate in a tensor, and the gradient scaler."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hpcbench.config.schema import OptimConfig
from hpcbench.optim.lamb import LAMB
from hpcbench.optim.lars import LARS
from hpcbench.optim.registry import create_optimizer, set_learning_rate
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
