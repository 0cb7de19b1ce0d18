"""The profile likelihood of epochs(B) = E_min (1 + B / B_crit), and the intervals that follow from it.

A line is given by its mean epochs M at the middle batch B0 and by the share w of them that is E_min: epochs(B) is
M (w + (1 - w) B / B0). So w = 1 is a constant, w = 0 a proportion, and B_crit = B0 w / (1 - w) for all between. For
each w the likelihood is maximised over M, spread and scatter; what it loses against its maximum decides the interval of
w, and so of B_crit (profile likelihood; Venzon and Moolgavkar, Applied Statistics 37, 1988). An interval of epochs(B),
including E_min (B = 0), covers all lines within the same bound, with the loss in M to second order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import interpolate, optimize

from hpcbench.study.epoch_likelihood import EpochLikelihood, Floats
from hpcbench.study.epoch_run import EpochRun

FARTHEST = 7.0
"""Logits of w beyond this are not told apart from w = 0 and w = 1: B_crit is a thousandth of B0, or a thousand B0."""
COARSE = 15
FINE = 21
DRAWN = 400
"""Lines from which an interval of epochs(B) is made."""
LEAST_SPREAD = 1e-3
MOST_SPREAD = 3.0
FIRST_SPREAD = 0.1
FIRST_SCATTER = 0.05
HIDDEN = 0.1
"""A spread below this part of the distance between evaluations is hidden by it; both are of the logarithm of epochs."""


@dataclass(frozen=True)
class Peak:
    """The most probable line for one w."""

    logit: float
    value: float
    """The log-likelihood."""
    log_middle: float
    """The logarithm of M."""
    log_spread: float
    scatter: float

    @property
    def share(self) -> float:
        """The share w."""
        return share_of(self.logit)

    @property
    def start(self) -> Floats:
        """The values from which the search for a neighbouring peak starts."""
        return np.array([self.log_middle, self.log_spread, max(self.scatter, FIRST_SCATTER)])


@dataclass(frozen=True)
class Lines:
    """All lines of a confidence region: the share w of each, the logarithm of M, and by how much that may be off."""

    shares: Floats
    log_middles: Floats
    halves: Floats
    is_flat: bool
    """Whether a constant is among them."""
    is_proportional: bool
    """Whether a proportion is among them."""


class EpochProfile:
    """The best lines through ``runs``; ``with_scatter`` false takes the scatter between batches to be 0."""

    def __init__(self, runs: Sequence[EpochRun], *, with_scatter: bool = True) -> None:
        self.likelihood = EpochLikelihood(runs)
        self.middle = float(np.sqrt(self.likelihood.sizes[0] * self.likelihood.sizes[-1]))
        """B0, in samples."""
        self._most_scatter = MOST_SPREAD if with_scatter else 0.0
        widths = [math.log(run.up_to / run.above) for run in runs if run.reached and run.above > 0]
        self._width = float(np.median(widths)) if widths else 0.0
        """The logarithm of the epochs at an evaluation over those at the one before."""
        typical = [run.up_to if run.reached else run.above for run in runs]
        self._first = np.array([float(np.mean(np.log(typical))), math.log(FIRST_SPREAD), FIRST_SCATTER])

    def log_growth(self, logit: float, batch_sizes: Floats) -> Floats:
        """The logarithm of epochs(B) / M."""
        share = share_of(logit)
        return np.asarray(np.log(share + (1 - share) * batch_sizes / self.middle))

    def peak(self, logit: float, start: Floats | None = None) -> Peak:
        """The most probable line for the w whose logit is ``logit``, which may be infinite."""
        growth = self.log_growth(logit, self.likelihood.sizes)

        def loss(values: Floats) -> tuple[float, Floats]:
            derivatives = self.likelihood(values[0] + growth, float(values[1]), float(values[2]))
            return -derivatives.value, -np.array(
                [derivatives.log_mean.sum(), derivatives.log_spread, derivatives.scatter]
            )

        def minimised(first: Floats, most_scatter: float) -> Peak:
            bounds = [(None, None), (math.log(LEAST_SPREAD), math.log(MOST_SPREAD)), (0.0, most_scatter)]
            first = np.minimum(first, [np.inf, np.inf, most_scatter])
            minimum = optimize.minimize(
                loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-11}
            )
            return Peak(logit, -float(minimum.fun), *map(float, minimum.x))

        first = self._first if start is None else start
        peak = minimised(first, self._most_scatter)
        if peak.scatter <= 0:
            return peak
        # Where seeds tie, the likelihood without scatter can have a peak of its own.
        without = minimised(np.array([first[0], self._first[1], 0.0]), 0.0)
        return max(peak, without, key=lambda peak: peak.value)

    def hides(self, peak: Peak) -> bool:
        """Whether evaluations are so far apart that they hide the spread between seeds.

        Where the seeds of most batches tie, any small spread is as probable as another. The likelihood then has the
        shape of a box, and intervals from it would be too short.
        """
        return math.exp(peak.log_spread) < HIDDEN * self._width

    def best(self) -> Peak:
        """The most probable line of all."""
        peaks = [self.peak(-math.inf)]
        for logit in np.linspace(-FARTHEST, FARTHEST, COARSE):
            peaks.append(self.peak(float(logit), peaks[-1].start))
        peaks.append(self.peak(math.inf, peaks[-1].start))
        place = max(range(len(peaks)), key=lambda number: peaks[number].value)
        if not 0 < place < len(peaks) - 1:
            return peaks[place]
        step, near = 2 * FARTHEST / (COARSE - 1), peaks[place]
        bounds = near.logit - step, near.logit + step
        minimum = optimize.minimize_scalar(
            lambda logit: -self.peak(logit, near.start).value, bounds=bounds, method="bounded", options={"xatol": 1e-5}
        )
        return max(near, self.peak(float(minimum.x), near.start), key=lambda peak: peak.value)

    def lines(self, best: Peak, bound: float) -> Lines:
        """All lines for which twice the log-likelihood is at most ``bound`` below that of ``best``."""
        low, high = (self._end(best, bound, sign * FARTHEST) for sign in (-1, 1))
        flat, proportional = (self._loss(best, sign * math.inf) <= bound for sign in (1, -1))
        logits = np.linspace(-FARTHEST if proportional else low, FARTHEST if flat else high, FINE)
        peaks = list[Peak]()
        for logit in logits:
            peaks.append(self.peak(float(logit), peaks[-1].start if peaks else best.start))
        left = bound - 2 * (best.value - np.array([peak.value for peak in peaks]))
        half = np.sqrt(np.maximum(left, 0) / np.array([self._information(peak) for peak in peaks]))
        log_middles = np.array([peak.log_middle for peak in peaks])
        if len(np.unique(logits)) == 1:
            return Lines(np.array([best.share]), np.array([best.log_middle]), half[:1], flat, proportional)
        drawn = np.linspace(logits[0], logits[-1], DRAWN)
        half, middles = (interpolate.PchipInterpolator(logits, at_logits)(drawn) for at_logits in (half, log_middles))
        shares = np.array([share_of(float(logit)) for logit in drawn])
        if flat:
            shares[-1] = 1.0
        if proportional:
            shares[0] = 0.0
        return Lines(shares, middles, half, flat, proportional)

    def _loss(self, best: Peak, logit: float) -> float:
        return 2 * (best.value - self.peak(logit, best.start).value)

    def _end(self, best: Peak, bound: float, limit: float) -> float:
        """The logit between that of ``best`` and ``limit`` at which the loss is ``bound``, or ``limit``."""
        if not math.isfinite(best.logit) or abs(best.logit) > FARTHEST:
            inner = math.copysign(FARTHEST, best.logit)
            if inner == limit:
                return limit
        else:
            inner = best.logit
        if self._loss(best, limit) <= bound:
            return limit
        if self._loss(best, inner) >= bound:
            return inner
        # The loss is flat far out, so the search for the end goes outwards.
        step, outer = math.copysign(0.05, limit - inner), inner
        while self._loss(best, outer) < bound:
            inner, outer, step = outer, outer + step, 2 * step
            if abs(outer) >= FARTHEST and (outer - limit) * step > 0:
                outer = limit
                break
        return float(optimize.brentq(lambda at: self._loss(best, at) - bound, inner, outer, xtol=1e-4))

    def _information(self, peak: Peak) -> float:
        """Minus the second derivative of the profile likelihood in log M, with spread and scatter re-optimised."""
        growth = self.log_growth(peak.logit, self.likelihood.sizes)
        free = [0, 1] if peak.scatter <= 1e-4 else [0, 1, 2]
        at = np.array([peak.log_middle, peak.log_spread, peak.scatter])
        rows = []
        for number in free:
            step = np.zeros(3)
            step[number] = 1e-4 if number < 2 else min(1e-4, peak.scatter / 2)
            ends = [self.likelihood(x[0] + growth, float(x[1]), float(x[2])) for x in (at - step, at + step)]
            below, above = (np.array([end.log_mean.sum(), end.log_spread, end.scatter])[free] for end in ends)
            rows.append((below - above) / (2 * step[number]))
        inverse = np.linalg.pinv((np.array(rows) + np.array(rows).T) / 2)
        return 1 / max(float(inverse[0, 0]), np.finfo(float).tiny)


def share_of(logit: float) -> float:
    """The share w for its logit, which may be infinite."""
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
