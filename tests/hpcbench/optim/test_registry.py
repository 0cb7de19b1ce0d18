"""The optimizers against their papers' formulas, written out in plain arithmetic."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from hpcbench.config.optimizers import OPTIMIZERS, optimizer_info, options_of, own_settings
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.registry import create_optimizer, parameter_kinds, set_learning_rate
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
    found, velocity, momentum = [], 0.0, options_of(config)["momentum"]
    for gradient in GRADIENTS:
        velocity = momentum * velocity + gradient + config.weight_decay * weight
        weight -= lr * velocity
        found.append(weight)
    return found


def adam(config: OptimConfig, weight: float = 1.5, lr: float = 0.1) -> list[float]:
    found, first, second = [], 0.0, 0.0
    decoupled = config.name == "adamw"
    (beta1, beta2), eps = options_of(config)["betas"], options_of(config)["eps"]
    for t, raw in enumerate(GRADIENTS, start=1):
        gradient = raw if decoupled else raw + config.weight_decay * weight
        if decoupled:
            weight *= 1 - lr * config.weight_decay
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        weight -= lr * first / (1 - beta1**t) / (math.sqrt(second / (1 - beta2**t)) + eps)
        found.append(weight)
    return found


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_sgd_with_momentum(weight_decay: float) -> None:
    config = OptimConfig(name="sgd", momentum=0.9, weight_decay=weight_decay)
    assert steps(config) == pytest.approx(sgd(config), rel=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_adam_decays_in_the_gradient_and_adamw_beside_it(name: str, eps: float) -> None:
    config = OptimConfig(name=name, weight_decay=0.05, eps=eps)
    assert steps(config) == pytest.approx(adam(config), rel=1e-12)


def test_deepcam_epsilon_is_the_default() -> None:
    assert all(options_of(OptimConfig(name=name))["eps"] == 1e-6 for name in ("adam", "adamw", "lamb", "nvlamb"))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_learns_repeats_and_resumes(name: str) -> None:
    config = OptimConfig(name=name, lr=20.0 if name == "lars" else 0.05)

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


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_the_fused_form_is_used_on_the_cpu(name: str) -> None:
    optimizer = create_optimizer(OptimConfig(name=name), [{"params": [nn.Parameter(torch.ones(2))]}], "cpu")
    assert optimizer.defaults["fused"] is True


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_the_fused_form_can_be_left_out_and_steps_alike(name: str) -> None:
    weights = []
    for fused in (True, False):
        weight = nn.Parameter(torch.linspace(-1, 1, 5))
        optimizer = create_optimizer(OptimConfig(name=name, lr=0.1, fused=fused), [{"params": [weight]}], "cpu")
        assert optimizer.defaults["fused"] is fused
        for step in range(3):
            weight.grad = weight.detach() + step
            optimizer.step()
        weights.append(weight)
    torch.testing.assert_close(*weights)


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


def test_every_option_is_a_setting_and_every_setting_an_option_of_some_optimizer() -> None:
    known = {name for info in OPTIMIZERS.values() for name in info.options}
    assert known == set(own_settings(OptimConfig()))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_option_reaches_the_optimizer(name: str) -> None:
    optimizer = create_optimizer(OptimConfig(name=name), [{"params": [nn.Parameter(torch.ones(2))]}], "cpu")
    outside = {"decay_exclude", "adapt_exclude", *([] if hasattr(optimizer, "record") else ["max_grad_norm"])}
    for option, value in OPTIMIZERS[name].options.items():
        if option not in outside:
            assert optimizer.param_groups[0][option] == value


def test_biases_and_norms_are_left_out_of_decay_and_adaptation() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2, bias=False))
    kinds = parameter_kinds(model)
    assert [kinds.get(parameter) for parameter in model.parameters()] == [None, "biases", "norms", "norms", None]
    groups = [{"params": list(model.parameters())}]

    def sorted_out(**options: Any) -> list[tuple[float, bool, int]]:
        optimizer = create_optimizer(OptimConfig(weight_decay=0.1, **options), groups, "cpu", kinds=kinds)
        return [(g["weight_decay"], g.get("adapt", True), len(g["params"])) for g in optimizer.param_groups]

    assert sorted_out(name="lars") == [(0.1, True, 2), (0.0, False, 3)]
    assert sorted_out(name="lamb", decay_exclude=["biases"]) == [(0.1, True, 2), (0.0, False, 1), (0.1, False, 2)]
    assert sorted_out(name="nvlamb") == sorted_out(name="sgd") == [(0.1, True, 5)]
    assert sorted_out(name="adamw", decay_exclude=["norms"]) == [(0.1, True, 3), (0.0, True, 2)]
