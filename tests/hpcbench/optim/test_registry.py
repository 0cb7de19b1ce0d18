"""The optimizers against their papers' formulas, written out in plain arithmetic."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from hpcbench.config.schema import OptimConfig
from hpcbench.optim.registry import OPTIMIZERS, create_optimizer, optimizer_info, set_learning_rate
from staging.errors import InputError

GRADIENTS = (0.5, -0.25, 2.0)


def steps(config: OptimConfig, start: float = 1.5, lr: float = 0.1) -> list[float]:
    """A single weight after each of three steps with the given gradients."""
    weight = nn.Parameter(torch.full((1,), start, dtype=torch.float64))
    optimizer = create_optimizer(config, [{"params": [weight]}], "cpu")
    set_learning_rate(optimizer, lr)
    found = []
    for gradient in GRADIENTS:
        weight.grad = torch.full((1,), gradient, dtype=torch.float64)
        optimizer.step()
        found.append(float(weight.detach()))
    return found


def sgd(config: OptimConfig, weight: float = 1.5, lr: float = 0.1) -> list[float]:
    found, velocity = [], 0.0
    for gradient in GRADIENTS:
        velocity = config.momentum * velocity + gradient + config.weight_decay * weight
        weight -= lr * velocity
        found.append(weight)
    return found


def adam(config: OptimConfig, weight: float = 1.5, lr: float = 0.1) -> list[float]:
    found, first, second = [], 0.0, 0.0
    decoupled = config.name == "adamw"
    for t, raw in enumerate(GRADIENTS, start=1):
        gradient = raw if decoupled else raw + config.weight_decay * weight
        if decoupled:
            weight *= 1 - lr * config.weight_decay
        first = config.betas[0] * first + (1 - config.betas[0]) * gradient
        second = config.betas[1] * second + (1 - config.betas[1]) * gradient**2
        corrected = first / (1 - config.betas[0] ** t), second / (1 - config.betas[1] ** t)
        weight -= lr * corrected[0] / (math.sqrt(corrected[1]) + config.eps)
        found.append(weight)
    return found


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_sgd_with_momentum(weight_decay: float) -> None:
    config = OptimConfig(name="sgd", momentum=0.9, weight_decay=weight_decay)
    assert steps(config) == pytest.approx(sgd(config), rel=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_adam_decays_in_the_gradient_and_adamw_beside_it(name: str, eps: float) -> None:
    config = OptimConfig(name=name, weight_decay=0.05, eps=eps)  # type: ignore[arg-type]
    assert steps(config) == pytest.approx(adam(config), rel=1e-12)


def test_deepcam_epsilon_is_the_default() -> None:
    assert OptimConfig().eps == 1e-6


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_learns_repeats_and_resumes(name: str) -> None:
    config = OptimConfig(name=name, lr=0.05)  # type: ignore[arg-type]

    def train(count: int, state: dict[str, object] | None = None) -> tuple[nn.Module, torch.optim.Optimizer, float]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        inputs = torch.randn(64, 8)
        targets = inputs[:, :1] * inputs[:, 1:2]
        optimizer = create_optimizer(config, [{"params": list(model.parameters())}], "cpu")
        if state is not None:
            model.load_state_dict(state["model"])  # type: ignore[arg-type]
            optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]
        for _ in range(count):
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            optimizer.step()
        return model, optimizer, float(loss.detach())

    first = train(1)[2]
    model, _, last = train(20)
    assert last < 0.8 * first
    half, optimizer, _ = train(10)
    resumed = train(10, {"model": half.state_dict(), "optimizer": optimizer.state_dict()})[0]
    for again in (train(20)[0], resumed):
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_the_fused_form_is_used_on_the_cpu(name: str) -> None:
    optimizer = create_optimizer(OptimConfig(name=name), [{"params": [nn.Parameter(torch.ones(2))]}], "cpu")  # type: ignore[arg-type]
    assert optimizer.defaults["fused"] is True


def test_a_device_without_fused_form_gets_the_plain_one() -> None:
    weight = nn.Parameter(torch.ones(2, device="meta"))
    optimizer = create_optimizer(OptimConfig(), [{"params": [weight]}], "meta")
    assert optimizer.defaults["fused"] is False


def test_groups_keep_their_own_weight_decay_and_are_not_changed() -> None:
    groups = [
        {"params": [nn.Parameter(torch.ones(1))], "weight_decay": 0.02},
        {"params": [nn.Parameter(torch.ones(1))]},
    ]
    optimizer = create_optimizer(OptimConfig(weight_decay=0.5), groups, "cpu")
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.02, 0.5]
    assert set(groups[1]) == {"params"}


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"unknown optimizer optim.name 'adamv'; did you mean 'adam"):
        optimizer_info("adamv")
