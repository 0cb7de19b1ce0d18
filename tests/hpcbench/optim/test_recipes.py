"""The published recipes: the page shows them, and they are those of the reference convergence points."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from hpcbench.config.validate import validate_schedule
from hpcbench.optim.recipes import RECIPES, Recipe, recipe_table
from hpcbench.optim.schedule import learning_rate

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"
POINTS = [recipe for recipe in RECIPES if recipe.point is not None]


def published(recipe: Recipe) -> dict[str, Any]:
    assert recipe.point is not None
    rules, name = recipe.point
    text = files("mlperf_logging").joinpath("rcp_checker", rules, f"rcps_{recipe.application}.json").read_text()
    point: dict[str, Any] = json.loads(text)[name]
    return point


def test_the_page_holds_the_table() -> None:
    table = PAGE.read_text().split("<!-- table: hpcbench.optim.recipes -->\n")[1].split("<!-- end of table -->")[0]
    assert table == recipe_table()


def test_every_point_of_both_applications_is_there() -> None:
    for application in ("cosmoflow", "deepcam"):
        folder = files("mlperf_logging").joinpath("rcp_checker", "hpc_3.0.0", f"rcps_{application}.json")
        names = {r.point[1] for r in POINTS if r.point is not None and r.point[0] == "hpc_3.0.0"}
        assert set(json.loads(folder.read_text())) <= names


@pytest.mark.parametrize("recipe", POINTS, ids=lambda recipe: f"{recipe.point[1]}-{recipe.point[0]}")
def test_recipe_is_the_published_point(recipe: Recipe) -> None:
    point = published(recipe)
    values = point["Hyperparams"]
    assert values["global_batch_size"] == point["BS"] == recipe.global_batch_size
    assert values["opt_name"] == recipe.optimizer
    assert values["opt_weight_decay"] == recipe.weight_decay
    assert fmean(olympic(point["Epochs to converge"])) == pytest.approx(recipe.epochs, abs=0.006)
    if recipe.application == "cosmoflow":
        check_cosmoflow(recipe, values)
    else:
        check_deepcam(recipe, values)


def olympic(epochs: list[int]) -> list[int]:
    """Without the fastest and the slowest run, as the rules score."""
    return sorted(epochs)[1:-1]


def check_cosmoflow(recipe: Recipe, values: dict[str, Any]) -> None:
    logged = {"start": recipe.start, "peak": recipe.peak, "both": recipe.peak}[recipe.logged]
    assert values["opt_base_learning_rate"] == logged
    assert values["opt_learning_rate_warmup_factor"] == pytest.approx(recipe.peak / recipe.start)
    assert values["opt_learning_rate_warmup_epochs"] == recipe.warmup
    assert values["opt_learning_rate_decay_boundary_epochs"] == [at for at, _ in recipe.drops]
    factors = values["opt_learning_rate_decay_factor"]
    assert recipe.drops[0][1] == (factors[0] if isinstance(factors, list) else factors)
    if isinstance(factors, list):
        assert [factor for _, factor in recipe.drops] == factors
    assert values["dropout"] == recipe.dropout


def check_deepcam(recipe: Recipe, values: dict[str, Any]) -> None:
    assert values["opt_lr"] == recipe.peak
    assert values["scheduler_lr_warmup_steps"] == recipe.warmup
    assert values["scheduler_lr_warmup_factor"] == 1.0
    if values["scheduler_type"] == "cosine_annealing":
        assert int(values["scheduler_t_max"]) == recipe.t_max
    else:
        assert values["scheduler_milestones"] == [at for at, _ in recipe.drops]
        rate = float(values["scheduler_decay_rate"])
        assert [factor for _, factor in recipe.drops] == pytest.approx([rate, rate**2][: len(recipe.drops)])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.application}-{recipe.global_batch_size}")
def test_recipe_is_a_valid_schedule_that_starts_peaks_and_drops_as_told(recipe: Recipe) -> None:
    schedule = recipe.schedule()
    if recipe.drops:
        validate_schedule(schedule, recipe.peak)
    offset = recipe.warmup if recipe.unit == "step" else 0
    if recipe.unit == "epoch" or not recipe.warmup:
        assert learning_rate(schedule, recipe.peak, 0, 1) == recipe.start
    assert learning_rate(schedule, recipe.peak, recipe.warmup, 1) == recipe.peak
    for at, factor in recipe.drops:
        assert learning_rate(schedule, recipe.peak, offset + at, 1) == pytest.approx(factor * recipe.peak)
        assert learning_rate(schedule, recipe.peak, offset + at - 1, 1) > factor * recipe.peak * 1.01
