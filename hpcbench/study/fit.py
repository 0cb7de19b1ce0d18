"""Epochs to target against batch size, epochs(B) = E_min (1 + B / B_crit), fitted with confidence intervals.

The form is that of McCandlish et al., "An Empirical Model of Large-Batch Training" (2018), whose hyperbola of steps S
and samples E, (S / S_min - 1)(E / E_min - 1) = 1, is E = E_min + S_min B. It holds where each batch has its own best
learning rate (Shallue et al., "Measuring the Effects of Data Parallelism on Neural Network Training", 2019); with a
recipe borrowed from another batch the scatter is the recipe's.

The form is linear in E_min and in the slope E_min / B_crit. Epochs to target spread by a part of their mean, so a run
weighs 1 / epochs(B)^2, with epochs(B) from the fit itself (gamma quasi-likelihood with identity link; McCullagh and
Nelder, "Generalized Linear Models", 1989, chapter 8). B_crit is a ratio of two estimates, for which a symmetric
interval is wrong: Fieller's ("Some problems in interval estimation", 1954) is exact for normal estimates, lopsided as
it must be, and reaches to infinity where the slope may be zero.

Epochs are counted at evaluations and so rounded up: where runs end at arbitrary instants, E_min is half an epoch too
large and B_crit too large by the same fraction (the slope keeps), and the spread has 0.29 epochs of rounding in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from hpcbench.study.scaling.weighted_line import (
    CONFIDENCE,
    MISFIT,
    Floats,
    Interval,
    Line,
    fit_line,
    lack_of_fit,
)
from staging.errors import InputError

LEAST_BATCHES = 3
"""Distinct batch sizes: two numbers are fitted, and one more point shows whether they fit."""
DOUBTFUL = 0.2
"""Means of batches that miss the line this improbably make its error, though only those below ``MISFIT`` are called a
misfit. A test whose outcome decides about pooling two errors wants such a level (Bozivich, Bancroft and Hartley, Ann.
Math. Stat. 27, 1956). At 0.05, recipes that are off by 5 % per batch, four batches of three seeds, leave B_crit's
interval a coverage of 86 %, at 0.2 of 88 %; where none is, of 97 %."""


@dataclass(frozen=True)
class EpochFit:
    """E_min (epochs) and B_crit (samples) with their 95 % intervals; not-a-number where nothing can be fitted.

    ``b_crit`` is infinite where epochs do not grow with the batch, and 0 where they grow in proportion to it or faster.
    """

    batch_sizes: Floats
    """Of every run, in samples."""
    epochs: Floats
    """To target, of every run."""
    e_min: float
    e_min_interval: Interval
    b_crit: float
    b_crit_interval: Interval
    slope: float
    """E_min / B_crit in epochs per sample: the fewest optimizer steps, over the samples of an epoch."""
    covariance: Floats
    """Of e_min and slope, (2, 2)."""
    quantile: float
    """Of Student's t, by which a standard error becomes half an interval."""
    error: Literal["runs", "batches"]
    """What the intervals are made of: the scatter of runs, or of the batches' means, where these miss the line."""
    lack_of_fit_p: float
    """Chance of means as far from the line as these by the scatter of seeds alone; not-a-number where not testable."""
    note: str
    """What a reader must know beside the numbers, in words; empty where there is nothing."""

    @property
    def n(self) -> int:
        """Runs."""
        return len(self.epochs)

    @property
    def batches(self) -> int:
        """Distinct batch sizes."""
        return len(np.unique(self.batch_sizes))

    @property
    def residuals(self) -> Floats:
        """Of every run, as a fraction of what the fit says: 0.1 took 10 % more epochs."""
        fitted = self.predict(self.batch_sizes)
        return (self.epochs - fitted) / fitted

    def predict(self, batch_sizes: npt.ArrayLike) -> Floats:
        """Epochs to target that the fit gives for other batch sizes."""
        return self.e_min + self.slope * np.asarray(batch_sizes, dtype=np.float64)

    def band(self, batch_sizes: npt.ArrayLike) -> tuple[Floats, Floats]:
        """The 95 % interval of the mean epochs to target at each batch size."""
        batch = np.asarray(batch_sizes, dtype=np.float64)
        variance = self.covariance[0, 0] + 2 * batch * self.covariance[0, 1] + batch**2 * self.covariance[1, 1]
        half = self.quantile * np.sqrt(np.maximum(variance, 0))
        middle = self.predict(batch)
        return middle - half, middle + half


def fit_epochs(batch_sizes: Sequence[float], epochs: Sequence[float]) -> EpochFit:
    """Fit runs, one observation each: the global batch size and the epochs that the run took to its target.

    Where the means of the batches miss the line by more than the scatter of seeds explains (``lack_of_fit``), more
    seeds would not make the answer better: then each batch is one observation, and the intervals are the wider ones
    that follow; at p below ``DOUBTFUL`` already, as recipes of batches do differ. A misfit is announced below
    ``MISFIT``. Runs that missed the target are no observations; leaving out many flatters large batches.
    Raises ``InputError`` for lengths that differ and for numbers that are not positive.
    """
    batch, taken = _observations(batch_sizes, epochs)
    distinct = np.unique(batch)
    if len(distinct) < LEAST_BATCHES:
        return _unfitted(batch, taken, len(distinct))
    line = fit_line(batch, taken)
    p = lack_of_fit(batch, taken, line)
    if not p < DOUBTFUL:
        return _estimates(batch, taken, line, "runs", p, [])
    line = fit_line(distinct, np.array([taken[batch == size].mean() for size in distinct]))
    said = "miss the line by more than seeds explain" if p < MISFIT else "may miss the line"
    note = f"batches {said} (p {_probability(p)}), so intervals are of their means"
    return _estimates(batch, taken, line, "batches", p, [note])


def _estimates(
    batch: Floats, taken: Floats, line: Line, error: Literal["runs", "batches"], p: float, notes: list[str]
) -> EpochFit:
    """E_min and B_crit of a line, at the ends of their range too."""
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, line.freedom))
    interval = _fieller(line.coefficients, line.covariance, quantile)
    (e_min, slope), covariance = line.coefficients.tolist(), line.covariance
    b_crit = e_min / slope if slope > 0 else math.inf
    if slope <= 0:
        notes.append("epochs do not grow with the batch: B_crit is unbounded, E_min the mean")
        e_min, slope, covariance = line.mean, 0.0, np.diag([line.mean_variance, 0.0])
    elif e_min <= 0:
        notes.append("epochs grow in proportion to the batch or faster: E_min and B_crit are not above 0")
        e_min, b_crit, slope = 0.0, 0.0, float(np.mean(taken / batch))
    if interval[0] == 0 < b_crit:
        notes.append("E_min may be zero: B_crit has no lower bound")
    if interval[1] == math.inf > b_crit:
        notes.append("the slope may be zero: B_crit has no upper bound")
    half = quantile * math.sqrt(float(covariance[0, 0]))
    return EpochFit(
        batch_sizes=batch, epochs=taken, e_min=e_min, e_min_interval=(max(0.0, e_min - half), e_min + half),
        b_crit=b_crit, b_crit_interval=interval, slope=slope, covariance=covariance, quantile=quantile, error=error,
        lack_of_fit_p=p, note="; ".join(notes),
    )  # fmt: skip


def _observations(batch_sizes: Sequence[float], epochs: Sequence[float]) -> tuple[Floats, Floats]:
    batch, taken = np.asarray(batch_sizes, dtype=np.float64), np.asarray(epochs, dtype=np.float64)
    if batch.ndim != 1 or batch.shape != taken.shape:
        raise InputError(
            f"a fit takes one batch size and one number of epochs per run, not {batch.size} and {taken.size}"
        )
    for name, values in (("batch size", batch), ("number of epochs", taken)):
        wrong = values[~(np.isfinite(values) & (values > 0))]
        if len(wrong):
            raise InputError(f"a {name} of {wrong[0]:g} cannot be fitted; it must be above 0")
    return batch, taken


def _unfitted(batch: Floats, taken: Floats, distinct: int) -> EpochFit:
    nan, both = math.nan, (math.nan, math.nan)
    note = f"{distinct} batch size{'' if distinct == 1 else 's'}: a fit needs runs that reached the target at 3"
    return EpochFit(batch, taken, nan, both, nan, both, nan, np.full((2, 2), nan), nan, "runs", nan, note)


def _fieller(coefficients: Floats, covariance: Floats, quantile: float) -> Interval:
    """The values above 0 of B_crit that a t test of E_min - B_crit slope = 0 does not reject.

    With q = 1 / B_crit these have a q^2 - 2 b q + c <= 0, where a > 0 says that E_min is not 0, c > 0 the same of the
    slope; what may be 0 leaves its end of the interval open.
    """
    (e_min, slope), t2 = coefficients.tolist(), quantile**2
    (of_e_min, of_both), (_, of_slope) = covariance.tolist()
    a, b, c = e_min**2 - t2 * of_e_min, e_min * slope - t2 * of_both, slope**2 - t2 * of_slope
    root = math.sqrt(max(0.0, b * b - a * c))
    low = 0.0 if e_min <= 0 or a <= 0 else a / (b + root) if b + root > 0 else math.inf
    high = math.inf if slope <= 0 or c <= 0 else max(0.0, (b + root) / c)
    return low, high


def _probability(p: float) -> str:
    return "below 0.0001" if p < 1e-4 else f"{p:.2g}"
