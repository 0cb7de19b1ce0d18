"""The expected score of a submission: published or own epochs x the rate of own runs, with an interval.

A run takes a fixed part (staging, the extra time of first epochs, the rest) + epochs x (training samples / rate +
seconds of an evaluation). The interval is that of simulated submissions. The epochs of each run are drawn from the
known ones, which are themselves resampled, since they are a sample too. If they are the reference's, each submission
multiplies them by the ratio of a published entry to the reference. The rate is drawn around that of the own runs, with
their spread. Each simulated submission is scored by the rules: mean without the fastest and the slowest run, normalised
if it converges faster than the reference.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcbench.mlperf.convergence_check import RUNS, checker, nearest
from hpcbench.probability import EPOCHS_WEIGHT, pooled_scatter, student_draws
from staging.errors import InputError

ONE_RUN_SPREAD = 0.024
"""Standard deviation of ln(seconds per epoch) between runs of a submission: the median of the published rounds."""
SPREAD_WEIGHT = 2
"""Degrees of freedom with which this spread counts beside that of the own runs, which are few."""
DRAWS = 4000
LEVEL = 0.9
"""Fraction of the simulated submissions within the interval."""

Array = NDArray[np.float64]

Ratios = tuple[tuple[float, ...], ...]
"""Ratios of the mean epochs of published entries to those of the reference: a tuple for each site."""


@dataclass(frozen=True)
class KnownEpochs:
    """Epochs to the published quality, of single runs."""

    values: tuple[float, ...]
    source: str
    """Where they come from, in words."""
    ratios: Ratios = ((1.0,),)
    """Ratios of a submission's mean epochs to these, by site: one is drawn, with each site equally likely."""
    published_scatter: float | None = None
    """Standard deviation of ln(epochs) over published seeds, to pool with that of few values; ``None``: resample."""


@dataclass(frozen=True)
class Costs:
    """What the own runs measured, each in the order of the runs."""

    samples_per_s: tuple[float, ...]
    evaluation_s: float
    """Seconds to evaluate the whole validation set."""
    fixed_s: float
    """Seconds of a run, whatever its epochs: staging within the clock, the extra time of the first epoch, the rest."""
    train_samples: int
    """Samples of the published training set."""


@dataclass(frozen=True)
class Reference:
    """The mean of the reference at a batch, and the least mean that is accepted."""

    mean_epochs: float
    least_epochs: float


@dataclass(frozen=True)
class Projection:
    """Minutes to train, as the rules score them."""

    middle_min: float
    """Median of the simulated submissions."""
    low_min: float
    high_min: float
    """90 % of them lie between these."""
    too_fast: float
    """Fraction of submissions that converge faster than the rules accept; 0 without a reference."""
    epoch_s: float
    """Seconds of an epoch with its evaluation, at the median rate."""
    mean_epochs: float


def reference_epochs(application: str, ruleset: str, batch: int) -> tuple[KnownEpochs, Reference]:
    """Epochs of the reference convergence point at a batch, or between two, and its mean.

    Raises ``InputError`` if no point is at the batch or on both sides of it.
    """
    kind, point = nearest(checker(application, ruleset), batch, "pruned_rcps")
    if point is None or kind not in ("point", "interpolated"):
        raise InputError(
            f"no reference convergence point of {application} is at batch {batch} or on both sides of it; give epochs "
            "of your own with --epochs"
        )
    mean = float(point["RCP Mean"])
    reference = Reference(mean, mean / float(point["Max Speedup"]))
    if kind == "point":
        epochs = tuple(float(epoch) for epoch in point["Epochs to converge"])
        return KnownEpochs(epochs, f"reference convergence point of rules {ruleset}, {len(epochs)} runs"), reference
    spread, runs = float(point["RCP Stdev"]), 2 * RUNS[application]
    # An interpolated point has only a mean and a spread: the quantiles of a normal distribution stand in for runs.
    normal = statistics.NormalDist(mean, max(spread, 1e-9))
    epochs = tuple(normal.inv_cdf((number + 0.5) / runs) for number in range(runs))
    return KnownEpochs(epochs, f"between two reference convergence points of rules {ruleset}"), reference


def project(
    known: KnownEpochs, costs: Costs, runs: int, reference: Reference | None = None, seed: int = 1, draws: int = DRAWS
) -> Projection:
    """The projected score of ``runs`` runs. ``reference``: for the closed division, which normalises by it.

    Raises ``InputError`` without epochs or rates, or if one is not above 0.
    """
    if not known.values or min(known.values) <= 0:
        raise InputError("epochs must be at least one number above 0")
    if not costs.samples_per_s or min(costs.samples_per_s) <= 0:
        raise InputError("no run measured a rate above 0 samples/s")
    random = np.random.default_rng(seed)
    epochs = drawn_epochs(known, runs, draws, random) * drawn_ratios(known.ratios, draws, random)
    rates = drawn_rates(np.asarray(costs.samples_per_s), runs, draws, random)
    times = costs.fixed_s + epochs * (costs.train_samples / rates + costs.evaluation_s)
    scores, means = olympic_rows(times) / 60, olympic_rows(epochs)
    too_fast = 0.0
    if reference is not None:
        scores = scores * np.maximum(1.0, reference.mean_epochs / means)
        too_fast = float((means < reference.least_epochs).mean())
    low, middle, high = (float(quantile) for quantile in np.quantile(scores, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2]))
    rate = statistics.median(costs.samples_per_s)
    return Projection(middle, low, high, too_fast, costs.train_samples / rate + costs.evaluation_s, float(means.mean()))


def drawn_epochs(known: KnownEpochs, runs: int, draws: int, random: np.random.Generator) -> Array:
    """(draws, runs): for each submission the known runs are resampled, and its own are drawn from these.

    With a published scatter they are drawn around the mean of the known ones, whose own error is drawn too.
    """
    values = np.asarray(known.values)
    if known.published_scatter is None:
        anew = random.choice(values, size=(draws, len(values)))
        return np.take_along_axis(anew, random.integers(0, len(values), size=(draws, runs)), axis=1)
    logs = np.log(values)
    spread, freedom = pooled_scatter(logs.tolist(), known.published_scatter, EPOCHS_WEIGHT)
    centre = logs.mean() + spread / math.sqrt(len(logs)) * student_draws(random, freedom, draws)
    drawn: Array = np.exp(centre[:, None] + spread * random.standard_normal((draws, runs)))
    return drawn


def own_known_epochs(values: Sequence[float], published_scatter: float) -> KnownEpochs:
    """Epochs of own runs, with a source that says by which scatter they are drawn."""
    published = f"the {100 * published_scatter:.1f} % of published seeds"
    scatter = f"its scatter is {published} alone" if len(values) == 1 else f"their scatter is pooled with {published}"
    return KnownEpochs(tuple(values), f"{len(values)} given, {scatter}", published_scatter=published_scatter)


def drawn_ratios(ratios: Ratios, draws: int, random: np.random.Generator) -> Array:
    """(draws, 1): for each submission, one of the ratios."""
    every = [ratio for site in ratios for ratio in site]
    weights = [1 / len(ratios) / len(site) for site in ratios for _ in site]
    drawn: Array = random.choice(every, size=(draws, 1), p=weights)
    return drawn


def drawn_rates(measured: Array, runs: int, draws: int, random: np.random.Generator) -> Array:
    """(draws, runs): rates around the mean of the measured ones, whose own error is drawn too (Student's t)."""
    logs = np.log(measured)
    count = len(measured)
    spread, freedom = pooled_scatter(logs.tolist(), ONE_RUN_SPREAD, SPREAD_WEIGHT)
    if count > 1:
        spread = max(spread, float(logs.std(ddof=1)))
    error = student_draws(random, freedom, draws)
    centre = logs.mean() + spread / math.sqrt(count) * error
    drawn: Array = np.exp(centre[:, None] + spread * random.standard_normal((draws, runs)))
    return drawn


def olympic_rows(values: Array) -> Array:
    """Mean of each row without its lowest and highest."""
    rows: Array = np.sort(values, axis=1)[:, 1:-1].mean(axis=1)
    return rows


def interval_words(projection: Projection, known: KnownEpochs) -> Sequence[str]:
    """The projection in sentences."""
    lines = [
        f"time to train {projection.middle_min:.4g} min, 90 % between {projection.low_min:.4g} and "
        f"{projection.high_min:.4g}",
        f"{projection.mean_epochs:.4g} epochs of {projection.epoch_s:.4g} s with evaluation",
        f"epochs: {known.source}",
    ]
    if projection.too_fast > 0:
        lines.append(f"{100 * projection.too_fast:.0f} % of simulated submissions converge faster than is accepted")
    return lines
