"""The spread of epochs between seeds, with intervals, and whether it changes with the batch size.

Epochs to target are taken as log-normal at each batch size, and as rounded up to an evaluation. The interval of a
standard deviation is that of a normal sample, less what rounding adds (a twelfth of the squared distance between
evaluations). The trend is the slope of log variance against log batch size, weighted by degrees of freedom. Its p-value
and interval come from simulated studies with the same sizes, the pooled spread and the same evaluations (parametric
bootstrap; Efron and Tibshirani, "An Introduction to the Bootstrap", 1993). ``benchmarks/comparison_coverage.py``
measures how often they hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

CONFIDENCE = 0.95
LEVEL = 0.05
LEAST_BATCHES = 3
RESOLVED = 4.0
"""Least ratio of the pooled variance to the variance that rounding adds; below it, evaluations would make the trend."""
SIMULATED = 2000


@dataclass(frozen=True)
class SpreadTrend:
    """The ratio of the spread at the largest batch to that at the smallest, by the slope over all batches."""

    ratio: float
    interval: Interval
    p: float
    """Two-sided chance of such a slope if the spread is the same at all batches."""
    smallest: int
    largest: int

    @property
    def changes(self) -> bool:
        """Whether a trend was found."""
        return self.p <= LEVEL


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation (n - 1) over mean; ``None`` for fewer than two values."""
    return float(np.std(values, ddof=1) / np.mean(values)) if len(values) > 1 else None


def resolved_spread(values: Sequence[float], step: float) -> float | None:
    """The spread; also ``None`` if it is less than rounding to evaluations ``step`` epochs apart would make it.

    Values that coincide after rounding do not show that there is no spread.
    """
    seed_spread = spread(values)
    return None if seed_spread is None or seed_spread < _rounding(values, step) else seed_spread


def spread_interval(values: Sequence[float], step: float) -> Interval | None:
    """The 95 % interval of standard deviation over mean; ``None`` for fewer than two values."""
    if len(values) < 2:
        return None
    from hpcbench.probability import chi_squared_quantile  # a study's status needs no SciPy

    degrees = len(values) - 1
    least = _rounding(values, step) ** 2
    variance = max(float(np.var(np.log(values), ddof=1)), least)
    ends = (float(chi_squared_quantile(chance, degrees)) for chance in ((1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2))
    low, high = (math.sqrt(math.expm1(min(700.0, max(0.0, variance * degrees / end - least)))) for end in ends)
    return low, high


def spread_trend(rows: Sequence[tuple[int, Sequence[float]]], step: float) -> SpreadTrend | None:
    """The trend over ``rows``, each a batch size with the epochs of its seeds, evaluated ``step`` epochs apart.

    ``None`` for fewer than three batch sizes with two seeds, and if evaluations are too far apart to tell.
    """
    known = sorted((batch, np.asarray(values, dtype=np.float64)) for batch, values in rows if len(values) > 1)
    if len({batch for batch, _ in known}) < LEAST_BATCHES:
        return None
    from scipy import special

    sizes = np.log([batch for batch, _ in known])
    degrees = np.array([len(values) - 1 for _, values in known])
    weights = 1 / special.polygamma(1, degrees / 2)
    means = np.array([values.mean() for _, values in known])
    least = (step / means) ** 2 / 12
    variances = np.array([np.var(np.log(values), ddof=1) for _, values in known])
    slope = float(_slope(sizes, np.log(np.maximum(variances, least)), weights))
    pooled = max(0.0, float((degrees * (np.maximum(variances, least) - least)).sum() / degrees.sum()))
    if pooled < RESOLVED * least.max():
        return None
    drawn = _drawn_variances(means - step / 2, degrees + 1, math.sqrt(pooled), step)
    chance = _slope(sizes, np.log(np.maximum(drawn, least)), weights)
    span = float(sizes[-1] - sizes[0])
    low, high = (slope - float(np.quantile(chance, part)) for part in ((1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2))
    more, fewer = (chance >= slope).sum(), (chance <= slope).sum()
    p = min(1.0, 2 * (1 + float(min(more, fewer))) / (1 + SIMULATED))
    ratio, *ends = (math.exp(steepness * span / 2) for steepness in (slope, low, high))
    return SpreadTrend(ratio, (ends[0], ends[1]), p, known[0][0], known[-1][0])


def _rounding(values: Sequence[float], step: float) -> float:
    """The standard deviation over the mean that rounding alone gives."""
    return step / math.sqrt(12) / float(np.mean(values))


def _slope(sizes: Floats, log_variances: Floats, weights: Floats) -> Floats:
    """The slope by weighted least squares over the last axis."""
    away = weights * (sizes - np.average(sizes, weights=weights))
    return np.asarray(log_variances @ away / (away @ sizes))


def _drawn_variances(means: Floats, counts: npt.NDArray[np.int64], spread: float, step: float) -> Floats:
    """Variances of log epochs in simulated studies, an array of (studies, batches)."""
    random = np.random.default_rng(len(means))
    variances = np.empty((SIMULATED, len(means)))
    for place, (mean, count) in enumerate(zip(means, counts, strict=True)):
        epochs = mean * np.exp(random.normal(-(spread**2) / 2, spread, (SIMULATED, count)))
        variances[:, place] = np.var(np.log(np.ceil(np.maximum(epochs, step) / step) * step), axis=1, ddof=1)
    return variances
