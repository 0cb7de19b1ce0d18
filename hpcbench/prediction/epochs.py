"""Epochs to the target: from runs with the same recipe at the same batch, else an interval, or none.

Runs of one source (the reference point, an entry) scatter by ``seeds``, and sources that used one recipe differ by
``sources`` in addition. Both are standard deviations of the logarithm, pooled over all that were published. A recipe
other than the reference takes, in the median, exp(other) times the reference's epochs, give or take ``other_spread``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.recipes import (
    NEWEST_RULES,
    RULES,
    Recipe,
    recipe_of,
    reference_epochs,
    reference_points,
    same,
)  # fmt: skip
from hpcbench.results.units import counted
from staging.errors import InputError

Floats = NDArray[np.float64]

Basis = Literal["reference point", "same recipe", "between points", "another recipe", "own runs"]


@dataclass(frozen=True)
class EpochSpreads:
    """How much epochs scatter; standard deviations of logarithms."""

    seeds: float
    sources: float
    other: float
    other_spread: float


@dataclass(frozen=True)
class Epochs:
    """What is known about the epochs of a training."""

    mean: float
    """Over seeds."""
    uncertainty: float
    """Standard deviation of its logarithm."""
    seeds: float
    """Standard deviation of the logarithm of a single run's epochs about the mean."""
    basis: Basis
    words: str

    def draw(self, rng: np.random.Generator, count: int, runs: int = 1) -> Floats:
        """Draws of the mean epochs of ``runs`` runs."""
        sd = math.sqrt(self.uncertainty**2 + self.seeds**2 / runs)
        return np.asarray(self.mean * np.exp(sd * rng.standard_normal(count)))


def groups_of(entries: Sequence[ModelEntry]) -> dict[tuple[str, int, Recipe], list[tuple[float, ...]]]:
    """Epochs of each source by application, batch and recipe, with those of reference points."""
    groups: dict[tuple[str, int, Recipe], list[tuple[float, ...]]] = {}
    for entry in entries:
        if entry.one_trajectory or not entry.recipe:
            continue
        key = (entry.application, entry.global_batch, recipe_of(entry.recipe))
        reference = reference_epochs(entry.application, entry.round, entry.global_batch, key[2])
        if key not in groups and reference is not None:
            groups[key] = [reference]
        groups.setdefault(key, []).append(entry.epochs)
    return groups


def fit_spreads(entries: Sequence[ModelEntry]) -> EpochSpreads:
    """The scatter of published epochs."""
    groups = groups_of([entry for entry in entries if entry.round in RULES])
    every = [group for sources in groups.values() for group in sources]
    squares = sum(float(np.var(np.log(group))) * len(group) for group in every)
    seeds = math.sqrt(squares / max(sum(len(group) - 1 for group in every), 1))
    between, freedom = 0.0, 0
    for sources in groups.values():
        if len(sources) > 1:
            means = [float(np.mean(np.log(group))) for group in sources]
            expected = seeds**2 * statistics.fmean(1 / len(group) for group in sources)
            between += (len(means) - 1) * (statistics.variance(means) - expected)
            freedom += len(means) - 1
    sources_sd = math.sqrt(max(between / max(freedom, 1), 0.0))
    ratios = [ratio for entry in entries if (ratio := other_ratio(entry)) is not None]
    middle = statistics.median(ratios)
    return EpochSpreads(
        seeds, sources_sd, middle, math.sqrt(statistics.fmean((ratio - middle) ** 2 for ratio in ratios)),
    )  # fmt: skip


def other_ratio(entry: ModelEntry) -> float | None:
    """Logarithm of an entry's epochs over the reference's at its batch, for another recipe than that."""
    known = entry.recipe and not entry.one_trajectory and entry.round in RULES
    if not known or reference_epochs(entry.application, entry.round, entry.global_batch, recipe_of(entry.recipe)):
        return None
    reference = between_points(entry.application, RULES[entry.round], entry.global_batch)
    return None if reference is None else math.log(entry.mean_epochs / reference)


def point_means(application: str, ruleset: str) -> dict[int, float]:
    """Mean epochs of the reference point at each batch; for two recipes at one batch, those of the better one."""
    points = reference_points(application, ruleset)
    return {batch: min(statistics.fmean(epochs) for _, epochs in recipes) for batch, recipes in points.items()}


def between_points(application: str, ruleset: str, batch: int) -> float | None:
    """Epochs of the reference at a batch: its point's, or between two, linear in logarithms; ``None`` beyond them."""
    means = point_means(application, ruleset)
    if batch in means:
        return means[batch]
    for low, high in pairwise(means):
        if low < batch < high:
            part = math.log(batch / low) / math.log(high / low)
            return math.exp((1 - part) * math.log(means[low]) + part * math.log(means[high]))
    return None


def pooled(sources: Sequence[Sequence[float]], spreads: EpochSpreads, basis: Basis, words: str) -> Epochs:
    """The mean of several sources of one recipe; each is weighted by its own scatter and that between sources."""
    weights = [1 / (spreads.sources**2 + spreads.seeds**2 / len(group)) for group in sources]
    means = [math.log(statistics.fmean(group)) for group in sources]
    mean = sum(weight * value for weight, value in zip(weights, means, strict=True)) / sum(weights)
    uncertainty = math.sqrt(1 / sum(weights) + spreads.sources**2)
    return Epochs(math.exp(mean), uncertainty, spreads.seeds, basis, words)


def entry_epochs(entry: ModelEntry, others: Sequence[ModelEntry], spreads: EpochSpreads) -> Epochs:
    """What is known about the epochs of a published entry before it ran: its recipe, and what ``others`` took.

    ``others`` has no entries of its site.
    """
    recipe = recipe_of(entry.recipe)
    reference = reference_epochs(entry.application, entry.round, entry.global_batch, recipe)
    alike = [
        other.epochs
        for other in others
        if (other.application, other.global_batch) == (entry.application, entry.global_batch)
        and not other.one_trajectory
        and recipe_of(other.recipe) == recipe
    ]
    if reference is not None or alike:
        basis: Basis = "same recipe" if reference is None else "reference point"
        return pooled([*([reference] if reference else []), *alike], spreads, basis, basis)
    return other_epochs(entry.application, RULES[entry.round], entry.global_batch, spreads)


def other_epochs(application: str, ruleset: str, batch: int, spreads: EpochSpreads) -> Epochs:
    """Epochs of an undescribed recipe: those of the reference, and how much other recipes differ from it."""
    reference = between_points(application, ruleset, batch)
    if reference is None:
        raise InputError(no_point(application, ruleset, batch))
    return Epochs(
        reference * math.exp(spreads.other), spreads.other_spread, spreads.seeds, "another recipe",
        "another recipe than the reference's: an interval alone, from how much published ones differ",
    )  # fmt: skip


def reference_training(
    application: str, batch: int, others: Sequence[ModelEntry], spreads: EpochSpreads, ruleset: str = NEWEST_RULES
) -> Epochs:
    """Epochs of the reference recipe at a batch. Raises ``InputError`` for a batch beyond all points."""
    points = reference_points(application, ruleset)
    if batch in points:
        recipe, epochs = points[batch][0]
        alike = [
            other.epochs
            for other in others
            if (other.application, other.global_batch) == (application, batch)
            and not other.one_trajectory
            and same(recipe_of(other.recipe), recipe)
        ]
        entries = counted(len(alike), "published entry", "published entries")
        words = f"reference point at batch {batch:,}: {len(epochs)} runs, and {entries}"
        return pooled([epochs, *alike], spreads, "reference point", words)
    mean = between_points(application, ruleset, batch)
    if mean is None:
        raise InputError(no_point(application, ruleset, batch))
    low, high = neighbours(list(points), batch)
    words = f"no reference point at batch {batch:,}: between those at {low:,} and {high:,}, whose recipes differ"
    return Epochs(mean, spreads.other_spread, spreads.seeds, "between points", words)


def own_epochs(batch: int, runs: Mapping[int, Sequence[float]], spreads: EpochSpreads, where: str) -> Epochs:
    """Epochs at ``batch`` from your own runs, given by batch. Raises ``InputError`` where none has this batch."""
    if batch not in runs:
        have = ", ".join(f"{other:,}" for other in sorted(runs)) or "none"
        raise InputError(f"--recipe {where} has no run that reached the target at batch {batch:,} (it has {have})")
    words = f"{counted(len(runs[batch]), 'run')} of your own, in {where}"
    seeds = float(np.std(np.log(runs[batch]), ddof=1)) if len(runs[batch]) > 2 else spreads.seeds
    return Epochs(statistics.fmean(runs[batch]), seeds / math.sqrt(len(runs[batch])), seeds, "own runs", words)


def neighbours(batches: Sequence[int], batch: int) -> tuple[int, int]:
    """The batches of the points below and above."""
    return max(other for other in batches if other < batch), min(other for other in batches if other > batch)


def no_point(application: str, ruleset: str, batch: int) -> str:
    """Why no epochs can be given, in one line."""
    known = list(reference_points(application, ruleset))
    beyond = "above" if batch > known[-1] else "below"
    return (
        f"no reference point of {application} is at batch {batch:,} or {beyond}: they go from {known[0]:,} to "
        f"{known[-1]:,}; give a --batch between them, or runs of your own with --recipe FOLDER"
    )
