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


class BatchTerms(NamedTuple):
    """The log-likelihood of each batch on each of several lines: arrays of (lines, batches).

    Derivatives are with respect to the place of the batch, log spread and scatter, along one or two more axes of 3.
    """

    value: Floats
    gradient: Floats
    hessian: Floats


class RunTerms(NamedTuple):
    """The log-probability of all runs of each batch on each line and at each place, and its derivatives."""

    log_p: Floats
    by_place: Floats
    by_log_spread: Floats
    curvature: Floats
    """Minus the second derivative with respect to place."""
    ends: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
    """Per run: each end in units of the spread, and the density there over the probability of the interval."""


class EpochLikelihood:
    """The log-likelihood of runs as a function of the place of log T at each of ``sizes``, of spread and of scatter."""

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

    def terms(self, places: Floats, log_spread: Floats, scatter: Floats) -> BatchTerms:
        """The log-likelihood of every batch on several lines at once, with its first and second derivatives.

        The integral over u is one over v, with u = scatter x v. Derivatives with respect to place and scatter are those
        of the runs at a fixed v, or those of the density of u at a fixed u if the scatter is larger than the spread:
        the integrals are equal, and the integrand that changes less is the one that the nodes resolve.

        ``places`` are means of log T, of (lines, batches). ``log_spread`` and ``scatter`` have a value for each line;
        the scatter is above 0 on all lines or 0 on all.
        """
        spread, scatter = np.exp(log_spread)[:, None, None], scatter[:, None, None]
        if np.any(scatter > 0):
            nodes, log_weights = self._nodes(places, spread, scatter)
        else:
            nodes, log_weights = np.zeros((*places.shape, 1)), np.zeros((*places.shape, 1))
        runs = self._runs(places[:, :, None] + scatter * nodes, spread)
        logs = runs.log_p + log_weights
        largest = logs.max(2, keepdims=True)
        weights = np.exp(logs - largest)
        total = weights.sum(2, keepdims=True)
        weights /= total
        by_place, by_scatter, bends = runs.by_place, runs.by_place * nodes, self._bends(runs, nodes, weights, spread)
        if (is_wide := scatter > spread).any():
            scale = np.where(is_wide, scatter, 1)
            by_place = np.where(is_wide, nodes / scale, by_place)
            by_scatter = np.where(is_wide, (nodes**2 - 1) / scale, by_scatter)
            bends = np.where(is_wide[..., None], _wide_bends(bends, nodes, weights, scale), bends)
        slopes = np.stack([by_place, runs.by_log_spread, by_scatter], axis=2)
        gradient = np.asarray((slopes @ weights[..., None])[..., 0])
        spreading = (slopes * weights[:, :, None]) @ slopes.swapaxes(2, 3)
        hessian = spreading - gradient[..., None] * gradient[..., None, :] + bends
        return BatchTerms((largest + np.log(total))[..., 0], gradient, hessian)

    def _bends(self, runs: RunTerms, nodes: Floats, weights: Floats, spread: Floats) -> Floats:
        """The mean over the nodes of the second derivatives of the log-probability of the runs."""
        (low, at_low), (high, at_high) = runs.ends
        moment_low, moment_high = at_low * low, at_high * high
        square_low, square_high = moment_low * low, moment_high * high
        slope, moment = at_low - at_high, moment_low - moment_high
        mixed = self._counted(square_low - square_high - slope * (moment + 1)) / spread
        by_spread = self._counted(square_low * low - square_high * high - moment * (moment + 1))
        place, place_node, node = (-(runs.curvature * weights * nodes**power).sum(2) for power in range(3))
        both, both_node = ((mixed * weights * nodes**power).sum(2) for power in range(2))
        rows = [place, both, place_node, both, (by_spread * weights).sum(2), both_node, place_node, both_node, node]
        return np.stack(rows, axis=-1).reshape(*place.shape, 3, 3)

    def _nodes(self, places: Floats, spread: Floats, scatter: Floats) -> tuple[Floats, Floats]:
        """Values of v for every batch, with u = scatter x v, and the logarithms of what each counts in its integral.

        A run is at most as probable as exp(-z^2 / 2) where z is the distance from its interval, in units of the spread.
        So the integrand is below a bound beyond the ends that are used here.
        """
        mode = self._mode(places, spread, scatter)
        largest = self._runs(places[:, :, None] + scatter * mode, spread).log_p - mode**2 / 2
        far = np.sqrt(2 * (NEGLIGIBLE - largest))
        with np.errstate(divide="ignore"):
            beyond = far / np.sqrt(self._counts) * spread
        low = np.maximum(-far, ((self._low - beyond - places[:, :, None]) / scatter).max(2, keepdims=True))
        high = np.minimum(far, ((self._high + beyond - places[:, :, None]) / scatter).min(2, keepdims=True))
        below, above = np.maximum(mode - low, TINY), np.maximum(high - mode, TINY)
        nodes = np.concatenate([mode - below * NODES, mode + above * NODES], axis=2)
        widths = np.concatenate([np.log(below) + LOG_WEIGHTS, np.log(above) + LOG_WEIGHTS], axis=2)
        return nodes, widths - nodes**2 / 2 - LOG_ROOT

    def _mode(self, places: Floats, spread: Floats, scatter: Floats) -> Floats:
        """The most probable v of each batch, by Newton's method; an array of (lines, batches, 1).

        The logarithm of the integrand is concave, since the probability of an interval of a normal density is
        log-concave in its location.
        """
        mode = np.zeros((*places.shape, 1))
        for _ in range(MOST_STEPS):
            runs = self._runs(places[:, :, None] + scatter * mode, spread)
            bend = 1 + scatter**2 * runs.curvature
            step = np.clip((scatter * runs.by_place - mode) / bend, -LONGEST_STEP, LONGEST_STEP)
            mode += step
            if np.abs(step).max() < MODE_TOLERANCE:
                break
        return mode

    def _runs(self, place: Floats, spread: Floats) -> RunTerms:
        """The runs at places of (lines, batches, places); ``spread`` has a value for each line."""
        low = (self._low[:, None, :] - place[..., None]) / spread[..., None]
        high = (self._high[:, None, :] - place[..., None]) / spread[..., None]
        log_p = log_interval(low, high)
        at_low, at_high = _density(low, log_p), _density(high, log_p)
        slope = at_low - at_high
        moment = at_low * low - at_high * high
        curvature = np.maximum(slope**2 - moment, 0)
        return RunTerms(
            self._counted(log_p), self._counted(slope) / spread, self._counted(moment),
            self._counted(curvature) / spread**2, ((low, at_low), (high, at_high)),
        )  # fmt: skip

    def _counted(self, per_run: Floats) -> Floats:
        """The sum over the runs of each batch."""
        return np.asarray(np.einsum("lbpr,br->lbp", per_run, self._counts))


def _wide_bends(bends: Floats, nodes: Floats, weights: Floats, scatter: Floats) -> Floats:
    """The same for the density of u at a fixed u; the runs depend on the spread alone then."""
    mean, square = ((weights * nodes**power).sum(2) for power in (1, 2))
    variance = scatter[..., 0] ** 2
    wide = np.zeros_like(bends)
    wide[..., 0, 0], wide[..., 1, 1], wide[..., 2, 2] = -1 / variance, bends[..., 1, 1], (1 - 3 * square) / variance
    wide[..., 0, 2] = wide[..., 2, 0] = -2 * mean / variance
    return wide


def log_interval(low: Floats, high: Floats) -> Floats:
    """The logarithm of the standard normal probability between ``low`` and ``high``, exact in both tails."""
    upper = low > 0
    first, second = log_ndtr(np.where(upper, -high, low)), log_ndtr(np.where(upper, -low, high))
    gap = np.minimum(first - second, -np.finfo(float).tiny)
    return np.asarray(second + np.log(-np.expm1(gap)))


def _density(at: Floats, log_p: Floats) -> Floats:
    """The standard normal density at the end of an interval, divided by the interval's probability."""
    return np.asarray(np.exp(np.clip(at * at / -2 - LOG_ROOT - log_p, -LARGEST_LOG, LARGEST_LOG)))
