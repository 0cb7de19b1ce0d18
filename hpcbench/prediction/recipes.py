"""Which runs used the same recipe: the settings that determine epochs, as logs and reference points have them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from hpcbench.mlperf.convergence_check import checker

RULES = {"v1.0": "1.0.0", "v2.0": "2.0.0"}
NEWEST_RULES = "3.0.0"
NAMES = (
    "opt_name", "opt_base_learning_rate", "opt_weight_decay", "opt_learning_rate_warmup_epochs",
    "opt_learning_rate_warmup_factor", "opt_learning_rate_decay_boundary_epochs", "opt_learning_rate_decay_factor",
    "dropout", "scheduler_type", "scheduler_milestones", "scheduler_decay_rate", "scheduler_t_max",
    "scheduler_eta_min", "scheduler_lr_warmup_steps", "scheduler_lr_warmup_factor",
)  # fmt: skip
"""What logs and reference points both have. The rate of DeepCAM is not in all logs."""

Recipe = tuple[tuple[str, Any], ...]


def recipe_of(settings: Mapping[str, Any]) -> Recipe:
    """The settings that determine epochs, in canonical form; unset ones are left out."""
    recipe = [(name, plain(settings[name])) for name in NAMES if settings.get(name) is not None]
    return tuple(recipe)


def plain(value: Any) -> Any:
    """A number, a tuple of numbers, or a word in lower case; rounds also write numbers as text."""
    if isinstance(value, list | tuple):
        return tuple(plain(part) for part in value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value.lower()
    return float(value)


@cache
def reference_points(application: str, ruleset: str) -> dict[int, tuple[tuple[Recipe, tuple[float, ...]], ...]]:
    """Recipe and epochs of every run of the reference convergence points, by batch."""
    points_by_batch: dict[int, list[tuple[Recipe, tuple[float, ...]]]] = {}
    for point in checker(application, ruleset).rcp_data.values():
        epochs = tuple(float(run_epochs) for run_epochs in point["Epochs to converge"])
        points_by_batch.setdefault(int(point["BS"]), []).append((recipe_of(point["Hyperparams"]), epochs))
    return {batch: tuple(points) for batch, points in sorted(points_by_batch.items())}


def same(logged: Recipe, reference: Recipe) -> bool:
    """Whether a log agrees with a reference in every setting that both give, which must be two or more."""
    given, wanted = dict(logged), dict(reference)
    shared = [name for name in wanted if name in given]
    return len(shared) > 1 and all(given[name] == wanted[name] for name in shared)


def reference_epochs(application: str, round_: str, batch: int, logged: Recipe) -> tuple[float, ...] | None:
    """The epochs of the reference point whose recipe a published run used, by the rules of its round."""
    if round_ not in RULES:
        return None
    points = reference_points(application, RULES[round_]).get(batch, ())
    return next((epochs for recipe, epochs in points if same(logged, recipe)), None)
