"""The logged hyperparameters of each application as dotted settings.

Keys: MLPerf HPC training rules 3.0, tables of hyperparameters. The rules leave open what a logged base rate of
CosmoFlow is, and what a lone decay factor means; docs/schedules.md tells how published runs answer this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hpcbench.optim.recipes import RECIPES
from hpcbench.submission.logged_values import LoggedValues, as_number

Settings = dict[str, str]
Translation = tuple[tuple[str, ...], Callable[[LoggedValues], Settings]]
"""The settings that a part of a recipe makes, and the function that makes them."""

REFERENCE_START = 0.001
"""Rate at which the warm-up of CosmoFlow's reference begins, for every batch."""
HALVED = 0.25
"""The first drop of CosmoFlow's reference, and the only one that logs write: 0.25, then 0.125."""


def written(value: object) -> str:
    """A value as a user would type it."""
    if isinstance(value, list):
        return f"[{','.join(written(entry) for entry in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def near(one: float, other: float) -> bool:
    """Whether two rates are the same, apart from rounding."""
    return math.isclose(one, other, rel_tol=1e-6)


def cosmoflow_optimizer(log: LoggedValues) -> Settings:
    """``sgd``, the only optimizer of the closed division."""
    name = str(log.get("opt_name"))
    if name.lower() != "sgd":
        raise log.unfit("opt_name", "optim.name", "sgd or SGD, whose settings have keys in CosmoFlow's logs")
    return {"optim.name": "sgd", "optim.momentum": "0.9"}  # the rules fix the momentum, and no log has it


def cosmoflow_rate(log: LoggedValues) -> Settings:
    """Peak and warm-up, in epochs."""
    base = log.number("opt_base_learning_rate", "optim.lr")
    warmup = log.whole("opt_learning_rate_warmup_epochs", "schedule.warmup")
    factor = log.number("opt_learning_rate_warmup_factor", "schedule.warmup_start_lr")
    start, peak = start_and_peak(log, base, warmup, factor)
    return {
        "optim.lr": written(peak), "schedule.warmup": written(warmup),
        "schedule.warmup_start_lr": written(start if warmup else 0.0),
    }  # fmt: skip


def start_and_peak(log: LoggedValues, base: float, warmup: int, factor: float) -> tuple[float, float]:
    """The rates at which a warm-up begins and ends. Raises ``InputError`` if the log leaves them open."""
    if not warmup or factor == 1:
        return base, base
    if factor < 1:  # a fraction of a logged peak, as in some logs of v0.7; 0 begins at 0
        return base * factor, base
    as_peak, as_start = (base / factor, base), (base, base * factor)
    if log.is_own or "schedule.warmup_start_lr" in log.given or fits(log, warmup, *as_peak):
        return as_peak
    if fits(log, warmup, *as_start):
        return as_start
    raise log.error(
        f"opt_base_learning_rate {base:g} with a warm-up factor of {factor:g} may be the peak or the start of the "
        f"warm-up; give --optim.lr {as_peak[1]:g} or --optim.lr {as_start[1]:g}"
    )


def fits(log: LoggedValues, warmup: int, start: float, peak: float) -> bool:
    """Whether a warm-up agrees with the user, a published recipe at this batch, or the reference's start."""
    if "optim.lr" in log.given:
        chosen = as_number(log.given["optim.lr"])
        return chosen is not None and near(peak, chosen)
    batch = as_number(log.get("global_batch_size"))
    published = [(recipe.start, recipe.peak) for recipe in RECIPES if recipe.application == "cosmoflow"
                 and recipe.global_batch_size == batch and recipe.warmup == warmup]  # fmt: skip
    return near(start, REFERENCE_START) or any(near(start, s) and near(peak, p) for s, p in published)


def cosmoflow_drops(log: LoggedValues) -> Settings:
    """Drops of the rate at epochs from the start, as fractions of the peak."""
    if log.get("scheduler_type") not in (None, "multistep", "constant"):
        raise log.unfit("scheduler_type", "schedule.shape", "one whose length CosmoFlow's logs tell")
    epochs = log.milestones("opt_learning_rate_decay_boundary_epochs", "schedule.milestones")
    factors = log.numbers("opt_learning_rate_decay_factor", "schedule.factors") if epochs else []
    if len(factors) == 1 and len(epochs) > 1 and "schedule.factors" not in log.given:
        factors = [factors[0] / 2**number for number in range(len(epochs))]
        if not (near(factors[0], 0.5) or (near(factors[0], HALVED) and len(epochs) == 2)):
            raise log.error(
                f"opt_learning_rate_decay_factor {factors[0]:g} alone leaves the drops after the first open; give "
                f"--schedule.factors with {len(epochs)} fractions of the peak"
            )
    elif len(factors) != len(epochs) and "schedule.factors" not in log.given:
        raise log.error(f"{len(factors)} decay factors for {len(epochs)} boundary epochs; give --schedule.factors")
    return {
        "schedule.shape": "multistep" if epochs else "constant", "schedule.milestones": written(epochs),
        "schedule.factors": written(factors), "schedule.t_max": "0", "schedule.eta_min": "0",
    }  # fmt: skip


def weight_decay(log: LoggedValues) -> Settings:
    """The weight decay; 0 if the log does not have it, which the rules allow."""
    silent = log.get("opt_weight_decay") is None
    return {"optim.weight_decay": written(0.0 if silent else log.number("opt_weight_decay", "optim.weight_decay"))}


def dropout(log: LoggedValues) -> Settings:
    """The dropout; that of the reference if the log does not have it."""
    return {"model.dropout": "0.5" if log.get("dropout") is None else written(log.number("dropout", "model.dropout"))}


def deepcam_optimizer(log: LoggedValues) -> Settings:
    """Adam, AdamW, or LAMB with its options."""
    name = str(log.get("opt_name"))
    if name not in ("Adam", "AdamW", "LAMB"):
        raise log.unfit("opt_name", "optim.name", "Adam, AdamW or LAMB, as the closed division has it")
    betas = log.numbers("opt_betas", "optim.betas")
    made = {"optim.betas": written(betas), "optim.eps": written(log.number("opt_eps", "optim.eps"))}
    if name != "LAMB":
        return {"optim.name": name.lower(), **made}
    norm = log.number("opt_max_grad_norm", "optim.max_grad_norm")
    for key in ("bias_correction", "grad_averaging"):
        made[f"optim.{key}"] = written(log.truth(f"opt_{key}", f"optim.{key}"))
    return {"optim.name": "nvlamb" if norm > 0 else "lamb", **made, "optim.max_grad_norm": written(norm)}


def deepcam_rate(log: LoggedValues) -> Settings:
    """Peak and warm-up, in optimizer steps. A factor of 1 begins at 0, as the reference does."""
    base = log.number("opt_lr", "optim.lr")
    warmup = log.whole("scheduler_lr_warmup_steps", "schedule.warmup")
    factor = log.number("scheduler_lr_warmup_factor", "schedule.warmup_start_lr") if warmup else 1.0
    if factor < 1:
        raise log.unfit("scheduler_lr_warmup_factor", "schedule.warmup_start_lr", "at least 1")
    start = base if warmup and factor > 1 else 0.0
    return {
        "optim.lr": written(base * factor), "schedule.warmup": written(warmup),
        "schedule.warmup_start_lr": written(start),
    }  # fmt: skip


def deepcam_schedule(log: LoggedValues) -> Settings:
    """The schedule after the warm-up, counted in steps from its end."""
    kind = log.get("scheduler_type")
    made = {"schedule.milestones": "[]", "schedule.factors": "[]", "schedule.t_max": "0", "schedule.eta_min": "0"}
    if kind == "multistep":
        steps = log.milestones("scheduler_milestones", "schedule.milestones") if log.get("scheduler_milestones") else []
        rate = log.number("scheduler_decay_rate", "schedule.factors") if steps else 1.0
        made["schedule.milestones"] = written(steps)
        made["schedule.factors"] = written([rate ** (number + 1) for number in range(len(steps))])
        return {"schedule.shape": "multistep" if steps else "constant", **made}
    if kind != "cosine_annealing":
        raise log.unfit("scheduler_type", "schedule.shape", "multistep or cosine_annealing")
    made["schedule.t_max"] = written(log.whole("scheduler_t_max", "schedule.t_max"))
    made["schedule.eta_min"] = written(log.number("scheduler_eta_min", "schedule.eta_min"))
    return {"schedule.shape": "cosine", **made}


def batch_norm(log: LoggedValues) -> Settings:
    """Ranks that share the statistics of batch norm."""
    silent = log.get("batchnorm_group_size") is None
    size = 1 if silent else log.whole("batchnorm_group_size", "train.batchnorm_group_size")
    return {"train.batchnorm_group_size": written(size)}


RATE = ("optim.lr", "schedule.warmup", "schedule.warmup_start_lr")
AFTER = ("schedule.shape", "schedule.milestones", "schedule.factors")
TRANSLATIONS: Mapping[str, tuple[Translation, ...]] = {
    "cosmoflow": (
        (("optim.name",), cosmoflow_optimizer),
        (RATE, cosmoflow_rate),
        (AFTER, cosmoflow_drops),
        (("optim.weight_decay",), weight_decay),
        (("model.dropout",), dropout),
    ),
    "deepcam": (
        (("optim.name",), deepcam_optimizer),
        (RATE, deepcam_rate),
        (AFTER, deepcam_schedule),
        (("optim.weight_decay",), weight_decay),
        (("train.batchnorm_group_size",), batch_norm),
    ),
}
UNITS = {"cosmoflow": "epoch", "deepcam": "step"}
"""The unit in which the schedules of each application count."""
