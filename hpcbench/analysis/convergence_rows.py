"""Epochs of each entry against its batch, beside the reference convergence points and their recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from hpcbench.analysis.entry_runs import EntryRuns, distinct
from hpcbench.analysis.sheets import column, text
from hpcbench.mlperf.convergence_check import checker, has_points, olympic
from hpcbench.mlperf.rulesets import NEWEST, ruleset_of_round
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED

RECIPE = (
    "opt_name", "opt_base_learning_rate", "opt_lr", "opt_weight_decay", "dropout", "opt_learning_rate_warmup_epochs",
    "opt_learning_rate_warmup_factor", "opt_learning_rate_decay_boundary_epochs", "opt_learning_rate_decay_factor",
    "opt_learning_rate_warmup_steps", "opt_learning_rate_decay_boundary_steps", "scheduler_type",
    "scheduler_milestones", "scheduler_decay_rate", "scheduler_t_max", "scheduler_lr_warmup_steps",
    "scheduler_lr_warmup_factor", "batchnorm_group_size", "gradient_accumulation_frequency",
)  # fmt: skip
SHORT = {
    "opt_name": "", "opt_base_learning_rate": "rate", "opt_lr": "rate", "opt_weight_decay": "decay",
    "dropout": "dropout",
    "opt_learning_rate_warmup_epochs": "warm-up epochs", "opt_learning_rate_warmup_factor": "warm-up factor",
    "opt_learning_rate_decay_boundary_epochs": "steps down at", "opt_learning_rate_decay_factor": "by",
    "opt_learning_rate_warmup_steps": "warm-up steps", "opt_learning_rate_decay_boundary_steps": "steps down at",
    "scheduler_type": "", "scheduler_milestones": "at", "scheduler_decay_rate": "by", "scheduler_t_max": "length",
    "scheduler_lr_warmup_steps": "warm-up steps", "scheduler_lr_warmup_factor": "warm-up factor",
    "batchnorm_group_size": "batch norm over", "gradient_accumulation_frequency": "accumulation",
}  # fmt: skip


@dataclass(frozen=True)
class ReferenceRow:
    """A reference convergence point."""

    application: str = column("application", "of the point", text)
    batch: int = column("batch", "global batch, samples", units.integer)
    epochs: float = column("epochs", "olympic mean of its runs")
    least: int = column("least", "epochs of its fastest run", units.integer)
    most: int = column("most", "epochs of its slowest run", units.integer)
    runs: int = column("runs", "its runs", units.integer)
    kept: str = column(
        "kept",
        "whether the checker keeps it: it drops those that converge more slowly than the line between others",
        text,
    )
    recipe: str = column("recipe", "its logged settings", text)
    ruleset: str = column("rules", "version of the rules", text, page=False)


@dataclass(frozen=True)
class ConvergenceRow:
    """Epochs of an entry."""

    application: str = column("application", "of the entry", text)
    entry: str = column("entry", "round, submitter and system", text)
    batch: int | None = column("batch", "global batch, samples", units.integer)
    epochs: float = column("epochs", "mean over runs of distinct trajectory that converged")
    least: float = column("least", "the fewest of a run")
    most: float = column("most", "the most of a run")
    trajectories: int = column("runs", "runs of distinct trajectory", units.integer)
    identical: int = column("alike", "further runs that trained exactly as one of them", units.integer)
    reference: float | None = column(
        "reference", "olympic mean of the reference point of this batch in the round's rules"
    )
    over_reference: float | None = column("over it", "epochs over those of the reference")
    differs: str = column(
        "recipe differs in", "logged settings that are not the point's; - where no point has this batch", text
    )
    recipe: str = column("recipe", "logged settings", text, page=False)
    verified: str = column("verified", "of own ones: not verified", text, page=False)


@cache
def points(application: str, ruleset: str) -> Mapping[int, ReferenceRow]:
    """Reference points by batch, from the official package; empty where the rules have none."""
    if not has_points(application, ruleset) or application == "openfold":
        return {}
    official = checker(application, ruleset)
    kept = {record["BS"] for record in official.pruned_rcp_data.values()}
    rows_by_batch = {}
    for record in official.rcp_data.values():
        epochs = record["Epochs to converge"]
        rows_by_batch[record["BS"]] = ReferenceRow(
            application, record["BS"], olympic(epochs), min(epochs), max(epochs), len(epochs),
            "yes" if record["BS"] in kept else "no", recipe_words(record["Hyperparams"]), ruleset,
        )  # fmt: skip
    return dict(sorted(rows_by_batch.items()))


@cache
def hyperparameters(application: str, ruleset: str, batch: int) -> Mapping[str, object] | None:
    """The settings of a reference point; ``None`` where there is none of this batch."""
    if not has_points(application, ruleset):
        return None
    records = (record for record in checker(application, ruleset).rcp_data.values() if record["BS"] == batch)
    return next((dict(record["Hyperparams"]) for record in records), None)


def reference_rows(applications: Sequence[str]) -> list[ReferenceRow]:
    """The points of the newest rules."""
    return [row for application in applications for row in points(application, NEWEST).values()]


def convergence_rows(entries: Sequence[EntryRuns]) -> list[ConvergenceRow]:
    """A row for each entry with a run that converged."""
    return [row for entry in entries if (row := convergence_row(entry)) is not None]


def convergence_row(entry: EntryRuns) -> ConvergenceRow | None:
    """Epochs of an entry; runs of one trajectory count once."""
    good = [run for run in entry.runs if run.converged and run.epochs]
    if not good:
        return None
    told = distinct(good)
    epochs = [run.epochs or 0.0 for run in told]
    run, mean = entry.first, fmean(epochs)
    application, batch = run.application or "-", run.global_batch_size
    ruleset = NEWEST if entry.is_own else ruleset_of_round(run.round)
    point = points(application, ruleset).get(batch or 0) if ruleset else None
    settings = hyperparameters(application, ruleset, batch) if point is not None and batch else None
    return ConvergenceRow(
        application, entry.name, batch, mean, min(epochs), max(epochs), len(told), len(good) - len(told),
        point.epochs if point else None, mean / point.epochs if point else None,
        "" if settings is None else ", ".join(differences(run.recipe, settings)) or "nothing", recipe_words(run.recipe),
        NOT_VERIFIED if entry.is_own else "",
    )  # fmt: skip


def differences(logged: Mapping[str, object], reference: Mapping[str, object]) -> list[str]:
    """Settings in which a log differs from the point, in words."""
    return [
        SHORT[key] or key.removeprefix("opt_").removesuffix("_type")
        for key in RECIPE
        if key in logged and key in reference and not alike(logged[key], reference[key])
    ]


def alike(one: object, other: object) -> bool:
    """Whether settings are equal; numbers may be text, and a list of one value is that value."""
    return normal(one) == normal(other)


def normal(value: object) -> object:
    """A setting in canonical form."""
    if isinstance(value, str):
        try:
            return normal([float(part) for part in value.strip("[]").replace(",", " ").split()])
        except ValueError:
            return value.casefold()
    if isinstance(value, list | tuple):
        parts = tuple(normal(part) for part in value)
        return parts[0] if len(parts) == 1 or (parts and len(set(parts)) == 1) else parts
    return float(f"{value:.6g}") if isinstance(value, int | float) and not isinstance(value, bool) else value


def recipe_words(settings: Mapping[str, object]) -> str:
    """The settings that make a recipe, in a line."""
    return ", ".join(f"{SHORT[key]} {settings[key]}".strip() for key in RECIPE if settings.get(key) not in (None, ""))
