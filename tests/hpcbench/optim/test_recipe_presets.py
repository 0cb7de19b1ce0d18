"""Every published recipe is a preset, and trains at the published rate in every step."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR, SequentialLR

from apps.deepcam.config import Config as DeepCAM
from hpcbench.application import applications, find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.optim.lr_scaling import scale_to_batch
from hpcbench.optim.recipes import RECIPES, Recipe
from hpcbench.optim.schedule import learning_rate

OPTIMIZERS = {"SGD": "sgd", "LAMB": "nvlamb"}
SAMPLES = {"cosmoflow": 524_288, "deepcam": 121_266}

RATES = {
    "mlperf-32": [0.001, 0.0025, *[0.004] * 2, *[0.001] * 2, *[0.00025] * 3],
    "mlperf-64": [*[0.001] * 16, *[0.00025] * 4],
    "mlperf-128": [0.001, 0.00175, 0.0025, 0.00325, *[0.004] * 12, *[0.001] * 3],
    "mlperf-512": [
        *[0.006, 0.009, 0.012, 0.015, 0.018, 0.021], *[0.024] * 13, *[0.012] * 2, 0.006, 0.003, 0.0015
    ],
    "mlperf-1024": [*[0.012] * 32, *[0.003] * 11],
    "reference-64": [*[0.001] * 16, *[0.00025] * 16, *[0.000125] * 96],
    "reference-512": [*[0.001, 0.00275, 0.0045, 0.00625], *[0.008] * 28, *[0.002] * 32, *[0.001] * 64],
}  # fmt: skip
"""By hand: CosmoFlow's rate in every epoch that a run of the convergence point had, or of the code's 128."""


def preset_name(recipe: Recipe) -> str:
    return f"{recipe.application}-{recipe.preset}"


def recipes(application: str) -> list[Recipe]:
    return [recipe for recipe in RECIPES if recipe.application == application]


def preset_of(recipe: Recipe) -> RunConfig:
    config = resolve(find_application(recipe.application), recipe.preset)
    scale_to_batch(config, recipe.global_batch_size)
    return config


def point_of(recipe: Recipe) -> dict[str, Any]:
    assert recipe.point is not None
    rules, name = recipe.point
    text = files("mlperf_logging").joinpath("rcp_checker", rules, f"rcps_{recipe.application}.json").read_text()
    point: dict[str, Any] = json.loads(text)[name]
    return point


@pytest.mark.parametrize("recipe", RECIPES, ids=preset_name)
def test_a_recipe_is_a_preset_of_the_closed_division(recipe: Recipe) -> None:
    config = preset_of(recipe)
    expected = recipe.schedule()
    assert config.schedule.factors == pytest.approx(expected.factors)
    config.schedule.factors = expected.factors
    assert config.schedule == expected
    assert config.optim.name == OPTIMIZERS[recipe.optimizer]
    assert (config.optim.lr, config.optim.base_batch_size) == (recipe.peak, recipe.global_batch_size)
    assert config.optim.weight_decay == recipe.weight_decay
    assert getattr(config.model, "dropout", 0.0) == recipe.dropout
    assert recipe.global_batch_size % config.train.local_batch_size == 0
    assert (config.data.train_samples, config.submission.division) == (SAMPLES[recipe.application], "closed")
    if recipe.application == "deepcam":
        assert (tuple(config.optim.betas), config.optim.eps) == ((0.9, 0.999), 1e-6)


@pytest.mark.parametrize("recipe", recipes("cosmoflow"), ids=preset_name)
def test_cosmoflow_trains_at_the_published_rate_in_every_step(recipe: Recipe) -> None:
    rates = RATES[recipe.preset]
    assert len(rates) == (max(point_of(recipe)["Epochs to converge"]) if recipe.point else 128)
    steps_per_epoch = SAMPLES["cosmoflow"] // recipe.global_batch_size
    # Where no run is published, the ends of every epoch.
    within = range(steps_per_epoch) if recipe.point else (0, steps_per_epoch - 1)
    schedule, peak = preset_of(recipe).schedule, recipe.peak
    for epoch, rate in enumerate(rates):
        first = epoch * steps_per_epoch
        (constant,) = {learning_rate(schedule, peak, first + step, steps_per_epoch) for step in within}
        assert constant == pytest.approx(rate, rel=1e-12), epoch


@pytest.mark.parametrize("recipe", recipes("deepcam"), ids=preset_name)
def test_deepcam_trains_at_the_rate_of_torchs_schedulers_in_every_step(recipe: Recipe) -> None:
    point, config = point_of(recipe), preset_of(recipe)
    assert isinstance(config, DeepCAM)
    assert config.data.last_batch == "drop"
    steps_per_epoch = SAMPLES["deepcam"] // recipe.global_batch_size
    steps = max(point["Epochs to converge"]) * steps_per_epoch
    expected = torch_rates(point["Hyperparams"], steps)
    found = [learning_rate(config.schedule, config.optim.lr, step, steps_per_epoch) for step in range(steps)]
    assert found == pytest.approx(expected, rel=1e-9)
    assert len({f"{rate:.6g}" for rate in expected}) > 1


def torch_rates(values: dict[str, Any], steps: int) -> list[float]:
    """The rate of every step by the schedulers of torch, from the published hyperparameters."""
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=values["opt_lr"])
    after: LRScheduler
    if values["scheduler_type"] == "multistep":
        after = MultiStepLR(optimizer, values["scheduler_milestones"], float(values["scheduler_decay_rate"]))
    else:
        after = CosineAnnealingLR(optimizer, int(values["scheduler_t_max"]), float(values["scheduler_eta_min"]))
    scheduler = after
    if warmup := values["scheduler_lr_warmup_steps"]:
        rise = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
        scheduler = SequentialLR(optimizer, [rise, after], [warmup])
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe.point], ids=preset_name)
def test_what_a_preset_logs_is_what_the_convergence_point_publishes(recipe: Recipe) -> None:
    published = dict(point_of(recipe)["Hyperparams"])
    config = preset_of(recipe)
    steps = SAMPLES[recipe.application] // recipe.global_batch_size
    logged = find_application(recipe.application).module("task").build_task(config).log_keys(steps)
    if recipe.application == "deepcam":
        published["batchnorm_group_size"] = published.pop("batchnorm_groupsize")
    # We log the peak; CosmoFlow's points give what docs/schedules.md tells of each.
    published.pop("opt_base_learning_rate", None)
    factors = published.pop("opt_learning_rate_decay_factor", 0.0)
    shared = set(published) & set(logged)
    assert len(shared) >= (12 if recipe.application == "deepcam" else 5)
    for key in shared:
        assert plain(logged[key]) == plain(published[key]), key
    if recipe.application == "cosmoflow":
        assert logged["opt_learning_rate_decay_factor"][0] == (factors[0] if isinstance(factors, list) else factors)


def plain(value: Any) -> Any:
    """Some points have numbers as text, and the name of an optimizer in either case."""
    try:
        return pytest.approx(float(value))
    except (TypeError, ValueError):
        return value.lower() if isinstance(value, str) else value


def test_the_presets_named_after_recipes_are_these_and_mlperf_is_one_of_them() -> None:
    for name, same in (("cosmoflow", "mlperf-512"), ("deepcam", "mlperf-128")):
        application = applications()[name]
        listed = {preset for preset in application.presets() if "-" in preset}
        assert listed == {recipe.preset for recipe in RECIPES if recipe.application == name}
        usual, other = resolve(application, "mlperf"), resolve(application, same)
        other.preset = "mlperf"
        assert usual == other


def test_presets_are_listed_by_size_and_then_by_batch() -> None:
    usual = {
        "cosmoflow": ["smoke", "laptop", "study", "workstation", "node", "mlperf"],
        "deepcam": ["smoke", "laptop", "study", "node", "mlperf"],
    }
    batches = {"cosmoflow": [32, 64, 128, 512, 1024], "deepcam": [128, "128-v1.0", 256, 512, 1024, 2048]}
    for name, more in (("cosmoflow", ["reference-64", "reference-512"]), ("deepcam", [])):
        expected = [*usual[name], *(f"mlperf-{batch}" for batch in batches[name]), *more]
        assert list(find_application(name).presets()) == expected
