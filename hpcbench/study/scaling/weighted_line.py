"""Fits a straight line to repeats that scatter by a part of their mean, and tests whether their means lie on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcbench.probability import f_quantile, f_tail, noncentral_f_tail

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

CONFIDENCE = 0.95
MISFIT = 0.05
"""Level of the test for lack of fit: means whose p-value is below this are said to miss the line."""
SURE = 1e4
"""A noncentrality that no test misses; SciPy's distribution fails at much larger ones."""


@dataclass(frozen=True)
class Line:
    """A weighted straight line: intercept and slope, their covariance, and the degrees of freedom of its error.

    Also the mean of its observations, which is the fit if there is no slope, and the variance of the mean.
    """

    coefficients: Floats
    covariance: Floats
    freedom: int
    mean: float
    mean_variance: float


def fit_line(batch: Floats, taken: Floats) -> Line:
    """Least squares with weights 1 / fitted^2, repeated until the weights are those of the fit itself."""
    scale = batch.max()
    design = np.stack([np.ones_like(batch), batch / scale], axis=1)
    fitted = np.array([taken[batch == size].mean() for size in batch])
    for _ in range(100):
        rows = design / fitted[:, None]
        coefficients = np.linalg.lstsq(rows, taken / fitted, rcond=None)[0]
        # A line that falls through zero must not give a run all the weight.
        before, fitted = fitted, np.maximum(design @ coefficients, 0.1 * taken)
        if np.allclose(fitted, before, rtol=1e-12, atol=0):
            break
    freedom = len(batch) - 2
    variance = float(np.sum(((taken - design @ coefficients) / fitted) ** 2)) / freedom
    back = np.array([1.0, 1 / scale])
    covariance = variance * np.linalg.inv(rows.T @ rows) * np.outer(back, back)
    return Line(coefficients * back, covariance, freedom, float(taken.mean()), float(taken.var(ddof=1)) / len(taken))


def lack_of_fit(batch: Floats, taken: Floats, line: Line) -> float:
    """The p-value of the F test of the batches' means about the line against the scatter within batches.

    Not-a-number if no batch has two runs. The test is that for lack of fit against pure error (Draper and Smith,
    "Applied Regression Analysis", 3rd edition, 1998, section 2.1), with the weights of the fit. It is exact for normal
    scatter by the same part of the mean at all batches, except that the weights, which are the fit's, are estimates.
    """
    distinct, group = np.unique(batch, return_inverse=True)
    pure, freedom = pure_error(batch, taken, line)
    if not freedom:
        return math.nan
    fitted = _at(line, batch)
    means = (np.bincount(group, taken) / np.bincount(group))[group]
    lack = float(np.sum(((means - fitted) / fitted) ** 2)) / (len(distinct) - 2)
    if lack < 1e-20:
        return 1.0
    return float(f_tail(lack / pure, len(distinct) - 2, freedom)) if pure else 0.0


def pure_error(batch: Floats, taken: Floats, line: Line) -> tuple[float, int]:
    """The variance of runs at one batch as a part of the line's square, and its degrees of freedom.

    The variance is not-a-number if there are no degrees of freedom.
    """
    distinct, group = np.unique(batch, return_inverse=True)
    freedom = len(batch) - len(distinct)
    means = (np.bincount(group, taken) / np.bincount(group))[group]
    squares = float(np.sum(((taken - means) / _at(line, batch)) ** 2))
    return (squares / freedom if freedom else math.nan), freedom


def power(batch: Floats, taken: Floats, line: Line, shifts: Floats) -> float:
    """How often ``lack_of_fit`` is below ``MISFIT`` if the batches' means are off by ``shifts``.

    ``shifts`` are parts of the line, one per run; the part of them that another line absorbs is not a lack of fit. The
    scatter is taken to be that of these runs. Uses the noncentral F distribution; 0 if there is no test.
    """
    pure, freedom = pure_error(batch, taken, line)
    if not freedom:
        return 0.0
    rows = np.stack([np.ones_like(batch), batch], axis=1) / _at(line, batch)[:, None]
    missed = shifts - rows @ np.linalg.lstsq(rows, shifts, rcond=None)[0]
    squares = float(missed @ missed)
    if squares >= SURE * pure:
        return 1.0
    lines = len(np.unique(batch)) - 2
    return float(noncentral_f_tail(f_quantile(1 - MISFIT, lines, freedom), lines, freedom, squares / pure))


def _at(line: Line, batch: Floats) -> Floats:
    """The line at each batch."""
    intercept, slope = line.coefficients.tolist()
    return np.asarray(intercept + slope * batch, dtype=np.float64)
