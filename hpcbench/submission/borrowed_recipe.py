"""A recipe from another submitter's log, as dotted settings of a run (MLPerf HPC training rules 3.0, borrowing)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcbench.results.units import counted
from hpcbench.submission.logged_values import LoggedValues, as_number, read_values
from hpcbench.submission.recipe_keys import TRANSLATIONS, UNITS, Settings
from staging.errors import InputError


@dataclass(frozen=True)
class BorrowedRecipe:
    """The recipe of a log: the optimizer, schedule, regularization and batch that it records."""

    path: Path
    application: str
    organization: str
    global_batch_size: int
    accumulation: int | None
    """Micro-batches per optimizer step; ``None`` if the log does not say."""
    norm_samples: float | None
    """Samples that share the statistics of batch norm; ``None`` without batch norm, or if the log does not say."""
    settings: Mapping[str, str]
    """Dotted settings, except those of the batch, which depend on the ranks of the run."""


def read_recipe(path: Path, application: str, given: Mapping[str, str]) -> BorrowedRecipe:
    """The recipe in the log at ``path`` for a run of ``application``.

    ``given`` are dotted settings of the user: these win, and the log is not asked for what they decide. Raises
    ``InputError`` for a log of another application, and for values that no settings of the suite express.
    """
    log = read_values(path, given)
    if application not in TRANSLATIONS:
        raise log.error(f"recipes can be taken from logs of {' and '.join(TRANSLATIONS)}, not of {application}")
    logged = log.get("submission_benchmark")
    if logged != application:
        raise log.error(f"is a log of {logged or 'no benchmark'}; give one of {application}")
    batch = global_batch(log)
    made: Settings = {
        "optim.scaling": "none", "optim.base_batch_size": str(batch), "schedule.unit": UNITS[application],
        "schedule.warmup_unit": "null",
    }  # fmt: skip
    for keys, translate in TRANSLATIONS[application]:
        if not set(keys) <= given.keys():
            made |= translate(log)
    silent = log.get("gradient_accumulation_frequency") is None
    accumulation = None if silent else log.whole("gradient_accumulation_frequency", "train.accumulation")
    return BorrowedRecipe(
        log.path, application, str(log.get("submission_org") or "unnamed"), batch, accumulation,
        norm_samples(log, batch), {key: made[key] for key in made if key not in given},
    )  # fmt: skip


def global_batch(log: LoggedValues) -> int:
    """The batch of the log, or, where it has none, the one that the rate of the user is for. Raises ``InputError``."""
    logged = as_number(log.get("global_batch_size"))
    is_whole = logged is not None and logged >= 1 and logged == int(logged)
    return int(logged or 0) if is_whole else log.whole("global_batch_size", "optim.base_batch_size")


def norm_samples(log: LoggedValues, batch: int) -> float | None:
    """Samples that share the statistics of batch norm in the log, whatever the user decides about them here.

    ``None`` unless the log has its ranks and their groups.
    """
    accumulation = as_number(log.get("gradient_accumulation_frequency")) or 1
    ranks, size = as_number(log.get("number_of_ranks")), as_number(log.get("batchnorm_group_size"))
    return batch * size / (ranks * accumulation) if ranks and size else None


def batch_settings(recipe: BorrowedRecipe, ranks: int, given: Mapping[str, str]) -> Settings:
    """Local batch and accumulation that make the recipe's global batch on ``ranks`` places along data.

    Raises ``InputError`` if none do.
    """
    batch, local, passes = recipe.global_batch_size, "train.local_batch_size", "train.accumulation"
    if local in given and passes in given:
        return {}
    known, wanted = (local, passes) if local in given else (passes, local)
    part = as_number(given[known]) if known in given else float(recipe.accumulation or 1)
    if part is None or part < 1 or part != int(part):
        return {}  # the configuration refuses it
    whole, rest = divmod(batch, ranks * int(part))
    if rest or not whole:
        what = ("sample each", "samples each") if known == local else ("micro-batch", "micro-batches")
        raise InputError(
            f"--recipe-from {recipe.path}: its global batch of {batch:,} does not divide over {counted(ranks, 'rank')} "
            f"x {counted(int(part), *what)}; take ranks that do, or give --{local} and --{passes}"
        )
    return {wanted: str(whole)} | ({} if known in given else {known: str(int(part))})


def recipe_lines(recipe: BorrowedRecipe, settings: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """What is taken from the log, in lines for the screen; ``given`` are dotted settings of the user."""
    lines = [f"recipe of {recipe.path} ({recipe.organization}, batch {recipe.global_batch_size:,}):"]
    lines += [f"  --{key} {value}" for key, value in settings.items()]
    local, key = settings.get("train.local_batch_size"), "train.batchnorm_group_size"
    group = as_number(settings.get(key, given.get(key, "1")))
    if recipe.norm_samples is None or local is None or group is None:
        return lines
    if (samples := int(local) * int(group)) != recipe.norm_samples:
        lines.append(f"  note: batch norm sees {counted(samples, 'sample')} here, {recipe.norm_samples:g} in the log")
    return lines
