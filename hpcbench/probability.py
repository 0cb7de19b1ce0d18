"""Student's t, chi squared and F by ``scipy.special``; ``scipy.stats``, which has them, takes half a second to import.

A quantile is the value below which the distribution has ``chance``; a tail is the chance of more than ``value``.
Arguments may be arrays, which are broadcast. The largest of many normal numbers and the scatter of few are here, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

EPOCHS_WEIGHT = 4
"""Degrees of freedom of the scatter of published epochs beside that of own ones.

In simulations 90 % intervals from 2 to 10 values then hold 85 to 97 % of submissions where their true scatter is 0.85
to 1.3 times the published one.
"""


def pooled_scatter(values: Sequence[float], published: float, weight: float) -> tuple[float, float]:
    """Standard deviation of few values and its degrees of freedom, pooled with a ``published`` one.

    That counts as ``weight`` degrees of freedom; beside a single value it stands alone, as if it were exact.
    """
    if len(values) < 2:
        return published, math.inf
    squares, freedom = float(np.var(values)) * len(values), weight + len(values) - 1
    return math.sqrt((weight * published**2 + squares) / freedom), freedom


def student_quantile(chance: Any, freedom: Any) -> Any:
    """Quantile of Student's t."""
    return special.stdtrit(freedom, chance)


def student_draws(random: np.random.Generator, freedom: float, count: int) -> NDArray[np.float64]:
    """Draws of Student's t; with infinite freedom, of the standard normal."""
    drawn = random.standard_normal(count) if math.isinf(freedom) else random.standard_t(freedom, count)
    return np.asarray(drawn)


def student_tail(value: Any, freedom: Any) -> Any:
    """Upper tail of Student's t."""
    return special.stdtr(freedom, np.negative(value))


def student_log_density(value: Any, freedom: Any) -> Any:
    """Logarithm of the density of Student's t; with infinite freedom, of the standard normal."""
    normal = np.isinf(freedom)
    finite = np.where(normal, 1.0, freedom)
    half = (finite + 1) / 2
    normed = special.gammaln(half) - special.gammaln(half - 0.5) - np.log(finite * math.pi) / 2
    squares = np.square(value)
    of_normal = -squares / 2 - math.log(2 * math.pi) / 2
    return np.where(normal, of_normal, normed - half * np.log1p(squares / finite))


def chi_squared_quantile(chance: Any, freedom: Any) -> Any:
    """Quantile of chi squared."""
    return 2 * special.gammaincinv(np.divide(freedom, 2), chance)


def chi_squared_tail(value: Any, freedom: Any) -> Any:
    """Upper tail of chi squared."""
    return special.chdtrc(freedom, value)


def f_quantile(chance: Any, above: Any, below: Any) -> Any:
    """Quantile of F with ``above`` degrees of freedom of the numerator and ``below`` of the denominator."""
    return special.fdtri(above, below, chance)


def f_tail(value: Any, above: Any, below: Any) -> Any:
    """Upper tail of F."""
    return special.fdtrc(above, below, value)


def noncentral_f_tail(value: Any, above: Any, below: Any, noncentrality: Any) -> Any:
    """Upper tail of the noncentral F, to within 1e-9 of one."""
    below_value = special.ncfdtr(above, below, noncentrality, value)
    lost = np.isnan(below_value)  # its series may not converge where the noncentrality is large
    if np.any(lost):
        summed = np.vectorize(_noncentral_f_sum, otypes=[float])(value, above, below, noncentrality)
        below_value = np.where(lost, summed, below_value)
    return 1 - below_value


def _noncentral_f_sum(value: float, above: float, below: float, noncentrality: float) -> float:
    """Chance of at most ``value``: a sum with Poisson weights, up to twelve standard deviations from the mean."""
    mean = noncentrality / 2
    if not (mean > 0 and math.isfinite(mean + value)):
        return math.nan
    reach = 12 * math.sqrt(mean) + 40
    terms = np.arange(max(0, math.floor(mean - reach)), math.ceil(mean + reach))
    weights = np.exp(terms * math.log(mean) - mean - special.gammaln(terms + 1))
    part = above * value / (above * value + below)
    return float(np.sum(weights * special.betainc(above / 2 + terms, below / 2, part)))


def expected_largest(count: Any) -> Any:
    """The expected largest of ``count`` standard normal numbers: 0 for one (Blom, 1958; within 0.04)."""
    return special.ndtri((np.asarray(count, float) - 0.375) / (np.asarray(count, float) + 0.25))


@cache
def largest_draws(random: np.random.Generator, number: int, count: int) -> NDArray[np.float64]:
    """``count`` draws of the largest of ``number`` standard normal values."""
    return np.asarray(-special.ndtri(-np.expm1(np.log(1 - random.random(count)) / number)))


@cache
def olympic_error(count: int) -> float:
    """Standard error of the olympic mean of ``count`` normal values, three or more, over the deviation of one.

    The covariances of an order statistic of normal values with all of them add up to 1, so that the variance of the sum
    without the extremes is count - 4 + 4 Var(highest) - Var(range). Both follow from their distribution functions.
    """
    x = np.linspace(-9, 9, 721)
    below, width = special.ndtr(x), x[1] - x[0]
    density = count * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * below ** (count - 1)
    highest = float((density * x**2).sum() * width) - float((density * x).sum() * width) ** 2
    within = 1 - below**count - (1 - below) ** count
    spread = float(within.sum() * width)
    low, high = below[:, None], below[None, :]
    beyond = np.where(low < high, 1 - high**count - (1 - low) ** count + (high - low) ** count, 0.0)
    squares = (2 * float(beyond.sum()) + float(within.sum())) * width**2
    return math.sqrt(count - 4 + 4 * highest - (squares - spread**2)) / (count - 2)
