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
from hpcbench.probability import EPOCHS_WEIGHT, pooled_scatter, student_draws
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
    """With what the few entries leave unknown of ``other``."""
    other_freedom: float
    """Degrees of freedom of ``other_spread``."""


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
    freedom: float = math.inf
    """Degrees of freedom of both standard deviations; infinite if they count as known."""

    def draw(self, rng: np.random.Generator, count: int, runs: int = 1) -> Floats:
        """Draws of the mean epochs of ``runs`` runs."""
        sd = math.sqrt(self.uncertainty**2 + self.seeds**2 / runs)
        return np.asarray(self.mean * np.exp(sd * student_draws(rng, self.freedom, count)))


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
    ratios: dict[tuple[str, str], list[float]] = {}
    for entry in entries:
        ratio = other_ratio(entry)
        if ratio is not None:
            ratios.setdefault((entry.application, entry.site), []).append(ratio)
    return EpochSpreads(seeds, sources_sd, *other_scatter(list(ratios.values())))


def other_scatter(groups: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Median, spread and degrees of freedom of logarithms that are alike within each group.

    Each group counts alike, since its values are of one recipe, or nearly. The spread is that of a new one about the
    median: with the median's own error, which is pi / 2 times that of a mean.
    """
    middle, number = statistics.median(ratio for group in groups for ratio in group), len(groups)
    squares = sum(statistics.fmean((ratio - middle) ** 2 for ratio in group) for group in groups)
    freedom = max(number - 1, 1)
    return middle, math.sqrt(squares / freedom * (1 + math.pi / 2 / number)), freedom


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
        spreads.other_freedom,
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
        entries = f", and {counted(len(alike), 'published entry', 'published entries')}" if alike else ""
        words = f"reference point at batch {batch:,}: {counted(len(epochs), 'run')}{entries}"
        return pooled([epochs, *alike], spreads, "reference point", words)
    mean = between_points(application, ruleset, batch)
    if mean is None:
        raise InputError(no_point(application, ruleset, batch))
    low, high = neighbours(list(points), batch)
    words = f"no reference point at batch {batch:,}: between those at {low:,} and {high:,}, whose recipes differ"
    return Epochs(mean, spreads.other_spread, spreads.seeds, "between points", words, spreads.other_freedom)


def own_epochs(
    batch: int, runs: Mapping[int, Sequence[float]], spreads: EpochSpreads, where: str, missed: int = 0
) -> Epochs:
    """Epochs at ``batch`` from your own runs, given by batch, of which ``missed`` more did not reach the target.

    Their scatter is pooled with that of published seeds. Raises ``InputError`` where none has this batch.
    """
    if batch not in runs:
        have = ", ".join(f"{other:,}" for other in sorted(runs)) or "none"
        raise InputError(f"--recipe {where} has no run that reached the target at batch {batch:,} (it has {have})")
    own = runs[batch]
    words = f"{counted(len(own), 'run')} of your own, in {where}"
    if missed:
        verb = "is" if missed == 1 else "are"
        words += f"; {missed} of {len(own) + missed} runs missed the target and {verb} not in this"
    seeds, freedom = pooled_scatter(np.log(own).tolist(), spreads.seeds, EPOCHS_WEIGHT)
    return Epochs(statistics.fmean(own), seeds / math.sqrt(len(own)), seeds, "own runs", words, freedom)


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
