"""The profile likelihood of epochs(B) = E_min (1 + B / B_crit), and the intervals that follow from it.

A line is given by its mean epochs M at the middle batch B0 and by the share w of them that is E_min: epochs(B) is
M (w + (1 - w) B / B0). So w = 1 is a constant, w = 0 a proportion, and B_crit = B0 w / (1 - w) for all between. For
each w the likelihood is maximised over M, spread and scatter; what it loses against its maximum decides the interval of
w, and so of B_crit (profile likelihood; Venzon and Moolgavkar, Applied Statistics 37, 1988). An interval of epochs(B),
including E_min (B = 0), covers all lines within the same bound, with the loss in M to second order.

Likelihoods are those of many lines at once (``EpochLikelihood.terms``), since a fit needs hundreds. A search
(``ascent``) is over the logit of w, the place of the middle batch, which is log M less half of both variances, log
spread and the square of the scatter, which may be 0; for a given w, the first of these is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import interpolate

from hpcbench.study.ascent import Values, ascend
from hpcbench.study.epoch_likelihood import EpochLikelihood, Floats
from hpcbench.study.epoch_run import EpochRun

FARTHEST = 7.0
"""Logits of w beyond this are not told apart from w = 0 and w = 1: B_crit is a thousandth of B0, or a thousand B0."""
COARSE = np.concatenate([[-np.inf], np.linspace(-FARTHEST, FARTHEST, 15), [np.inf]])
"""Logits at which the profile is known before anything is looked for."""
FINE = 21
DRAWN = 400
"""Lines from which an interval of epochs(B) is made."""
LEAST_SPREAD = 1e-3
MOST_SPREAD = 3.0
FIRST_SPREAD = 0.02
FIRST_SCATTER = 0.05
"""The first searches begin with at least this spread and scatter."""
LEAST_SCATTER = 1e-3
"""The smallest scatter that is not 0: the integral over it is of finite width."""
LEAST_GAIN = 1e-7
"""Scatter that does not gain more than this is none."""
LAST_MOVE = 1e-3
"""The search for the end of an interval ends after a move by less than this, since its error is about the square."""
NARROW = 1e-5
MOST_STEPS = 50
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


@dataclass(frozen=True)
class Peaks:
    """The most probable lines for several w: for each a row of logit, place, log spread and scatter squared."""

    points: Floats
    values: Values

    @property
    def log_middles(self) -> Floats:
        """The logarithm of M of each."""
        _, place, log_spread, variance = self.points.T
        return np.asarray(place + (np.exp(2 * log_spread) + variance) / 2)

    @property
    def scattered(self) -> npt.NDArray[np.bool_]:
        """Whether each has scatter."""
        return np.asarray(self.points[:, 3] > LEAST_SCATTER**2)

    @property
    def information(self) -> Floats:
        """Minus the second derivative of the profile likelihood in log M, with spread and scatter re-optimised."""
        log_spread = self.points[:, 2]
        change = np.zeros((len(self.points), 3, 3)) + np.eye(3)  # of the arguments, if log M is one of them
        change[:, 0, 1], change[:, 0, 2] = -np.exp(2 * log_spread), -1 / 2
        hessian = change.swapaxes(1, 2) @ self.values.hessian[:, 1:, 1:] @ change
        none = ~self.scattered
        hessian[none, 2, :] = hessian[none, :, 2] = 0
        return np.asarray(1 / np.maximum(np.linalg.pinv(-hessian, hermitian=True)[:, 0, 0], np.finfo(float).tiny))

    def peak(self, number: int) -> Peak:
        """One of them."""
        logit, _, log_spread, variance = map(float, self.points[number])
        value, log_middle = float(self.values.value[number]), float(self.log_middles[number])
        return Peak(logit, value, log_middle, log_spread, math.sqrt(variance))

    def near(self, logits: Floats) -> Floats:
        """Points from which the searches for other peaks start."""
        _, first = np.unique(self.points[:, 0], return_index=True)
        known = self.points[first[np.isfinite(self.points[first, 0])]]
        return np.column_stack([logits, interpolate.PchipInterpolator(known[:, 0], known[:, 1:])(logits)])

    def joined(self, others: Peaks) -> Peaks:
        """These and others."""
        points, *values = (np.concatenate(pair) for pair in zip(
            (self.points, *self.values), (others.points, *others.values), strict=True))  # fmt: skip
        return Peaks(points, Values(*values))

    def or_better(self, others: Peaks, numbers: npt.NDArray[np.intp]) -> Peaks:
        """The same, but ``others`` in the place of those with these ``numbers`` where they are more probable."""
        better = (others.values.value > self.values.value[numbers] + LEAST_GAIN) & others.scattered
        mixed = [each.copy() for each in (self.points, *self.values)]
        for all_of_them, some in zip(mixed, (others.points, *others.values), strict=True):
            all_of_them[numbers[better]] = some[better]
        return Peaks(mixed[0], Values(*mixed[1:]))


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
        self._with_scatter = with_scatter
        widths = [math.log(run.up_to / run.above) for run in runs if run.reached and run.above > 0]
        self._width = float(np.median(widths)) if widths else 0.0
        """The logarithm of the epochs at an evaluation over those at the one before."""
        self._batches = np.searchsorted(self.likelihood.sizes, [run.batch_size for run in runs])
        self._typical = np.log([run.up_to if run.reached else run.above for run in runs])

    def hides(self, peak: Peak) -> bool:
        """Whether evaluations are so far apart that they hide the spread between seeds.

        Where the seeds of most batches tie, any small spread is as probable as another. The likelihood then has the
        shape of a box, and intervals from it would be too short.
        """
        return math.exp(peak.log_spread) < HIDDEN * self._width

    def best(self) -> Peak:
        """The most probable line of all."""
        place = int(np.argmax(self._coarse.values.value))
        near = self._coarse.peak(place)
        if not 0 < place < len(COARSE) - 1:
            return near
        found = [self._search(peaks.points[[place]], reach=1.0) for peaks in self._coarse_by_scatter]
        self._remember(found)
        return self._best_of(found).peak(0)

    def lines(self, best: Peak, bound: float) -> Lines:
        """All lines for which twice the log-likelihood is at most ``bound`` below that of ``best``."""
        proportional, *_, flat = (bool(loss <= bound) for loss in self._losses(best))
        low, high = self._ends(best, bound)
        logits = np.linspace(-FARTHEST if proportional else low, FARTHEST if flat else high, FINE)
        peaks = self._peaks(logits)
        left = bound - 2 * (best.value - peaks.values.value)
        half, log_middles = np.sqrt(np.maximum(left, 0) / peaks.information), peaks.log_middles
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

    def _losses(self, best: Peak) -> Floats:
        return np.asarray(2 * (best.value - self._coarse.values.value))

    def _ends(self, best: Peak, bound: float) -> tuple[float, float]:
        """On both sides of ``best``, the logit at which the loss is ``bound``, or the farthest one."""
        brackets = [self._bracket(best, bound, sign) for sign in (-1, 1)]
        inner, outer, at = np.array(brackets).T
        for _ in range(MOST_STEPS):
            sought = np.flatnonzero(inner != outer)
            if not len(sought):
                break
            peaks = self._peaks(at[sought])
            losses = np.maximum(2 * (best.value - peaks.values.value), np.finfo(float).tiny)
            inside = losses < bound
            inner[sought[inside]], outer[sought[~inside]] = at[sought[inside]], at[sought[~inside]]
            # The root of the loss is nearly linear.
            slopes = -peaks.values.gradient[:, 0] / np.sqrt(losses)
            with np.errstate(divide="ignore", invalid="ignore"):
                moved = at[sought] + (math.sqrt(bound) - np.sqrt(losses)) / slopes
            ends = np.sort([inner[sought], outer[sought]], axis=0)
            good = (ends[0] <= moved) & (moved <= ends[1])
            moved = np.where(good, moved, ends.mean(0))
            done = good & (np.abs(moved - at[sought]) < LAST_MOVE) | (ends[1] - ends[0] < NARROW)
            at[sought] = moved
            inner[sought[done]] = outer[sought[done]] = moved[done]
        return float(at[0]), float(at[1])

    def _bracket(self, best: Peak, bound: float, sign: int) -> tuple[float, float, float]:
        """Neighbouring logits outwards of ``best`` between which the loss reaches ``bound``, and about where it does.

        All three are the same if that is the end itself.
        """
        limit = sign * FARTHEST
        logits, losses = COARSE[1:-1][::sign], self._losses(best)[1:-1][::sign]
        is_known = math.isfinite(best.logit) and abs(best.logit) <= FARTHEST
        inner, loss = (best.logit, 0.0) if is_known else (math.copysign(FARTHEST, best.logit), losses[0])
        if inner == limit or losses[-1] <= bound:
            return limit, limit, limit
        if loss >= bound:
            return inner, inner, inner
        for outer, there in zip(map(float, logits), map(float, losses), strict=True):
            if sign * (outer - inner) <= 0:
                continue
            if there >= bound:
                roots = [math.sqrt(max(each, 0)) for each in (loss, bound, there)]
                return inner, outer, float(np.interp(roots[1], roots[::2], (inner, outer)))
            inner, loss = outer, there
        raise AssertionError("the loss at the farthest logit is above the bound")

    def _peaks(self, logits: Floats) -> Peaks:
        """The most probable line for each w near known ones."""
        found = [self._search(self._known[0].near(logits))]
        peaks = found[0]
        for known in self._known[1:]:
            starts = known.near(logits)
            scattered = np.flatnonzero(starts[:, 3] > LEAST_SCATTER**2)  # a neighbour has scatter
            if len(scattered):
                found.append(self._search(starts[scattered]))
                peaks = peaks.or_better(found[1], scattered)
        self._remember(found)
        return peaks

    def _remember(self, searched: Sequence[Peaks]) -> None:
        """Let other searches start from what was found, without scatter and perhaps with it."""
        for which, new in enumerate(searched):
            self._known[which] = self._known[which].joined(new)

    @cached_property
    def _known(self) -> list[Peaks]:
        """All the most probable lines found so far, without and with scatter."""
        return list(self._coarse_by_scatter)

    @cached_property
    def _coarse_by_scatter(self) -> list[Peaks]:
        """The most probable lines at ``COARSE`` without scatter, and those with scatter."""
        growth, _, _ = self._growth(COARSE)
        residuals = self._typical - growth[:, self._batches]
        counts = np.bincount(self._batches)
        means = np.array([np.bincount(self._batches, each) / counts for each in residuals])
        within = max(float(np.sqrt(np.mean((residuals[0] - means[0, self._batches]) ** 2))), FIRST_SPREAD)
        spreads = np.clip(residuals.std(1), FIRST_SPREAD, MOST_SPREAD)
        starts = np.column_stack([COARSE, residuals.mean(1), np.log(spreads), np.zeros(len(COARSE))])
        found = [self._search(starts)]
        if self._with_scatter:
            variances = np.maximum(spreads**2 - within**2, FIRST_SCATTER**2)
            starts = np.column_stack([COARSE, residuals.mean(1), np.full(len(COARSE), math.log(within)), variances])
            found.append(self._search(starts))
        return found

    @cached_property
    def _coarse(self) -> Peaks:
        return self._best_of(self._coarse_by_scatter)

    @staticmethod
    def _best_of(searched: Sequence[Peaks]) -> Peaks:
        """The more probable of lines without scatter and, where they were sought, the same with scatter."""
        without, *with_scatter = searched
        return without.or_better(with_scatter[0], np.arange(len(without.points))) if with_scatter else without

    def _search(self, starts: Floats, reach: float = 0.0) -> Peaks:
        """The peaks near ``starts``, of which all or none have scatter, at most ``reach`` from their logits."""
        variances = (LEAST_SCATTER**2, MOST_SPREAD**2) if starts[0, 3] > 0 else (0.0, 0.0)
        bounds = [(-math.inf, math.inf), (math.log(LEAST_SPREAD), math.log(MOST_SPREAD)), variances]
        low, high = (np.tile([0.0, *ends], (len(starts), 1)) for ends in zip(*bounds, strict=True))
        low[:, 0], high[:, 0] = starts[:, 0] - reach, starts[:, 0] + reach
        return Peaks(*ascend(self._values, starts, low, high))

    def _values(self, points: Floats) -> Values:
        """The log-likelihood at rows of logit, place, log spread and scatter squared."""
        growth, slope, bend = self._growth(points[:, 0])
        scatter = np.sqrt(points[:, 3])
        terms = self.likelihood.terms(points[:, 1, None] + growth, points[:, 2], scatter)
        by_variance = np.divide(0.5, scatter, out=np.zeros_like(scatter), where=scatter > 0)
        change = np.zeros((*growth.shape, 3, 4))  # of a batch's place, log spread and scatter
        change[:, :, 0, 1] = change[:, :, 1, 2] = 1
        change[:, :, 0, 0], change[:, :, 2, 3] = slope, by_variance[:, None]
        gradient = np.einsum("lbi,lbij->lj", terms.gradient, change)
        hessian = (change.swapaxes(2, 3) @ terms.hessian @ change).sum(1)
        hessian[:, 0, 0] += (terms.gradient[:, :, 0] * bend).sum(1)
        hessian[:, 3, 3] -= 2 * by_variance**2 * gradient[:, 3]
        return Values(terms.value.sum(1), gradient, hessian)

    def _growth(self, logits: Floats) -> tuple[Floats, Floats, Floats]:
        """The logarithm of epochs(B) / M at all batches, with its derivatives with respect to the logit."""
        with np.errstate(over="ignore"):
            share, rest = 1 / (1 + np.exp(-logits))[:, None], 1 / (1 + np.exp(logits))[:, None]
        relative = self.likelihood.sizes / self.middle
        growth = share + rest * relative
        slope = share * rest * (1 - relative) / growth
        return np.log(growth), slope, slope * (rest - share - slope)


def share_of(logit: float) -> float:
    """The share w for its logit, which may be infinite."""
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
