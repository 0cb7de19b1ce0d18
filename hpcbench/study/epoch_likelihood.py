"""The likelihood of epochs to target known only between evaluations, with scatter between seeds and between batches.

A run whose target was met at an evaluation needed more epochs than had passed at the previous evaluation, and no more
than at this one. A run that missed the target needed more than it made. So every run is an interval, open above if it
missed the target, and the likelihood is that of the intervals (Lindsey and Ryan, "Methods for interval-censored data",
Statistics in Medicine 17, 1998).

The epochs T of a run at batch B are log-normal: log T = log E(B) + u + e, less half of both variances, so that E(B) is
the mean. The term e, which differs between seeds, has the standard deviation ``spread``, and u, which all runs at one
batch share, has ``scatter``: a recipe suits one batch better than another, and more seeds do not change that. Each
batch is integrated over its u by Gauss-Legendre quadrature on both sides of the mode, up to where the integrand is
negligible. Where seeds meet the target at the same evaluation, the integrand is nearly a box as wide as the interval,
and a rule for bell-shaped ones, such as that of Gauss and Hermite, is wrong by several units of the logarithm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from hpcbench.study.epoch_run import EpochRun

Floats = npt.NDArray[np.float64]

LOG_ROOT = math.log(2 * math.pi) / 2
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
NODES, LOG_WEIGHTS = (NODES + 1) / 2, np.log(WEIGHTS / 2)
"""Nodes and weights of an integral from 0 to 1."""
NEGLIGIBLE = 16.0
"""The integral ends where the logarithm of the integrand is surely this far below its largest value."""
MOST_STEPS = 40
LONGEST_STEP = 2.0
MODE_TOLERANCE = 1e-4
"""Quadrature on both sides of a point this near the mode is as good as at the mode."""
LARGEST_LOG = 700.0
"""The exponential of anything much larger overflows."""
OPEN = 1e6
"""The logarithm of the epochs at an open end of an interval."""
TINY = 1e-12


class Derivatives(NamedTuple):
    """The log-likelihood and its derivatives with respect to its arguments."""

    value: float
    log_mean: Floats
    """With respect to the logarithm of the mean of each batch."""
    log_spread: float
    scatter: float


class EpochLikelihood:
    """The log-likelihood of runs as a function of the mean epochs at each of ``sizes``, of spread and of scatter."""

    def __init__(self, runs: Sequence[EpochRun]) -> None:
        runs_by_size: dict[float, Counter[EpochRun]] = {}
        for run in sorted(runs, key=lambda run: run.batch_size):
            runs_by_size.setdefault(run.batch_size, Counter())[run] += 1
        self.sizes: Floats = np.array(list(runs_by_size))
        """The distinct batch sizes, smallest first."""
        shape = len(runs_by_size), max(map(len, runs_by_size.values()))
        # A batch with fewer distinct runs than others is padded with runs of any number of epochs, which count 0.
        self._low, self._high, self._counts = np.full(shape, -OPEN), np.full(shape, OPEN), np.zeros(shape)
        for place, runs_there in enumerate(runs_by_size.values()):
            for number, (run, count) in enumerate(runs_there.items()):
                self._low[place, number] = math.log(run.above) if run.above > 0 else -OPEN
                self._high[place, number] = min(math.log(run.up_to), OPEN)
                self._counts[place, number] = count
        self._last_mode: Floats = np.zeros(len(runs_by_size))
        self._no_scatter = np.zeros((len(runs_by_size), 1)), np.zeros((len(runs_by_size), 1))

    def __call__(self, log_mean: Floats, log_spread: float, scatter: float) -> Derivatives:
        """``log_mean`` has one value for each of ``sizes``; ``scatter`` is not negative."""
        spread = math.exp(log_spread)
        middle = log_mean - (spread**2 + scatter**2) / 2
        nodes, log_weights = self._nodes(middle, spread, scatter) if scatter > 0 else self._no_scatter
        log_p, by_place, by_log_spread, _ = self._runs(middle[:, None] + scatter * nodes, spread)
        terms = log_p + log_weights
        largest = terms.max(1, keepdims=True)
        weights = np.exp(terms - largest)
        total = weights.sum(1, keepdims=True)
        weights /= total
        by_mean = (weights * by_place).sum(1)
        return Derivatives(
            float((largest + np.log(total)).sum()),
            by_mean,
            float((weights * by_log_spread).sum() - by_mean.sum() * spread**2),
            float((weights * by_place * nodes).sum() - by_mean.sum() * scatter),
        )

    def _nodes(self, middle: Floats, spread: float, scatter: float) -> tuple[Floats, Floats]:
        """Values of v for every batch, with u = scatter x v, and the logarithms of what each counts in its integral.

        A run is at most as probable as exp(-z^2 / 2) where z is the distance from its interval, in units of the spread.
        So the integrand is below a bound beyond the ends that are used here.
        """
        mode = self._mode(middle, spread, scatter)
        largest = self._runs((middle + scatter * mode)[:, None], spread)[0][:, 0] - mode**2 / 2
        far = np.sqrt(2 * (NEGLIGIBLE - largest))
        with np.errstate(divide="ignore"):
            beyond = far[:, None] / np.sqrt(self._counts) * spread
        low = np.maximum(-far, ((self._low - beyond - middle[:, None]) / scatter).max(1))
        high = np.minimum(far, ((self._high + beyond - middle[:, None]) / scatter).min(1))
        below, above = np.maximum(mode - low, TINY), np.maximum(high - mode, TINY)
        nodes = np.hstack([mode[:, None] - below[:, None] * NODES, mode[:, None] + above[:, None] * NODES])
        widths = np.hstack([np.log(below)[:, None] + LOG_WEIGHTS, np.log(above)[:, None] + LOG_WEIGHTS])
        return nodes, widths - nodes**2 / 2 - LOG_ROOT

    def _mode(self, middle: Floats, spread: float, scatter: float) -> Floats:
        """The most probable v of each batch, by Newton's method.

        The logarithm of the integrand is concave, since the probability of an interval of a normal density is
        log-concave in its location. The search starts where the last call ended: an optimizer takes small steps.
        """
        mode = self._last_mode.copy()
        for _ in range(MOST_STEPS):
            _, by_place, _, curvature = self._runs((middle + scatter * mode)[:, None], spread)
            bend = 1 + scatter**2 * curvature[:, 0]
            step = np.clip((scatter * by_place[:, 0] - mode) / bend, -LONGEST_STEP, LONGEST_STEP)
            mode += step
            if np.abs(step).max() < MODE_TOLERANCE:
                break
        self._last_mode = np.where(np.isfinite(mode), mode, 0)  # a trial far out must not spoil later ones
        return mode

    def _runs(self, place: Floats, spread: float) -> tuple[Floats, Floats, Floats, Floats]:
        """The log-probability of all runs of each batch at each place, its derivatives with respect to place and log
        spread, and minus its second derivative with respect to place; arrays of (batches, places)."""
        low = (self._low[:, None, :] - place[:, :, None]) / spread
        high = (self._high[:, None, :] - place[:, :, None]) / spread
        log_p = log_interval(low, high)
        at_low, at_high = _density(low, log_p), _density(high, log_p)
        slope = at_low - at_high
        moment = at_low * low - at_high * high
        curvature = np.maximum(slope**2 - moment, 0)
        log_p, slope, moment, curvature = (
            np.einsum("bpr,br->bp", per_run, self._counts) for per_run in (log_p, slope / spread, moment, curvature)
        )
        return log_p, slope, moment, curvature / spread**2


def log_interval(low: Floats, high: Floats) -> Floats:
    """The logarithm of the standard normal probability between ``low`` and ``high``, exact in both tails."""
    upper = low > 0
    first, second = log_ndtr(np.where(upper, -high, low)), log_ndtr(np.where(upper, -low, high))
    gap = np.minimum(first - second, -np.finfo(float).tiny)
    return np.asarray(second + np.log(-np.expm1(gap)))


def _density(at: Floats, log_p: Floats) -> Floats:
    """The standard normal density at the end of an interval, divided by the interval's probability."""
    return np.asarray(np.exp(np.clip(-(at**2) / 2 - LOG_ROOT - log_p, -LARGEST_LOG, LARGEST_LOG)))
