"""Whether two series need different numbers of epochs to the target: an exact permutation test over their seeds.

Runs are compared within a batch size, which is a stratum. A pair of runs, one of each series, counts 1 if the first
surely needed more epochs, -1 if it surely needed fewer, and 0 if the evaluations, or a missed target, leave that open
(Gehan, "A generalized Wilcoxon test for comparing arbitrarily singly-censored samples", Biometrika 52, 1965). If the
series do not differ, every way of assigning the runs of a stratum to the two is equally likely. The sum over pairs and
strata is counted over all of these ways, so the p-value is exact for any number of seeds and any shape of scatter.

The interval of the ratio of epochs has every factor by which the epochs of the second series can be multiplied with no
difference found (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963). It assumes one ratio for all strata,
and is exact if all runs reached the target at closely spaced evaluations. ``benchmarks/comparison_coverage.py``
measures how often it contains the true ratio.

Several comparisons made together get Holm's p-values. Those whose runs are too few for any p-value of 5 % or less are
not counted among them: they cannot be found by chance either (Tarone, Biometrics 46, 1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hpcbench.study.epoch_run import EpochRun

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]
Stratum = tuple[Sequence[EpochRun], Sequence[EpochRun]]
"""The runs of the first and of the second series at one batch size."""

LEVEL = 0.05
POWER = 0.8
DRAWS = 500
"""Simulated studies from which the detectable ratio is found."""


@dataclass(frozen=True)
class Comparison:
    """Epochs of a first series over those of a second one, with a 95 % interval and the test of their equality."""

    ratio: float
    """The nearer end of a range, if the runs leave the other end of it open (``is_bound``)."""
    interval: Interval
    """Its ends are 0 and infinity where the runs leave them open."""
    p: float
    """Two-sided; ``holm`` adjusts it for several comparisons made together."""
    sizes: tuple[tuple[int, int], ...]
    """Runs of the first and of the second series at each batch size."""
    reached_sizes: tuple[tuple[int, int], ...]
    """The same at the batch sizes at which at least half of these runs reached the target."""
    spread: float
    """Standard deviation between seeds of the logarithm of epochs; infinite if it is not known."""
    balance: int
    """Pairs in which the first series needed more epochs, less those in which it needed fewer; what the test sees."""
    together: int = 1
    """Number of comparisons made together, of those that could find anything."""
    is_bound: bool = False
    """Whether the ratio is only a bound, since one series never reached the target where the other did."""

    def inverted(self) -> Comparison:
        """The comparison of the second series over the first."""
        low, high = self.interval
        ends = 1 / high, math.inf if low == 0 else 1 / low
        sizes, reached = (
            tuple((second, first) for first, second in pairs) for pairs in (self.sizes, self.reached_sizes)
        )
        return replace(
            self, ratio=1 / self.ratio, interval=ends, sizes=sizes, reached_sizes=reached, balance=-self.balance
        )

    @property
    def runs(self) -> int:
        """Number of runs of both series."""
        return sum(first + second for first, second in self.sizes)

    @property
    def batches(self) -> int:
        """Number of batch sizes."""
        return len(self.sizes)

    @property
    def least_p(self) -> float:
        """The smallest p-value that so many runs can give."""
        return least_p(self.sizes)

    def has_seeds_for(self, level: float) -> bool:
        """Whether series that do not overlap get a p-value of ``level`` or less from so many runs."""
        return least_p_untied(self.sizes) <= level

    @property
    def detectable(self) -> float:
        """The ratio that is found in four of five such studies; infinite if no ratio would be.

        For several comparisons made together, it is found even if none of the others finds anything. Batch sizes at
        which most runs missed the target are taken to decide nothing.
        """
        return math.exp(_detectable(self.reached_sizes, LEVEL / self.together) * self.spread)

    @property
    def bounded(self) -> bool:
        """Whether the runs decide both ends of the interval."""
        return self.interval[0] > 0 and math.isfinite(self.interval[1])

    @property
    def differs(self) -> bool:
        """Whether a difference was found."""
        return self.p <= LEVEL


def compare(strata: Sequence[Stratum]) -> Comparison | None:
    """The comparison of two series over ``strata``; ``None`` if no stratum has runs of both."""
    both = [(tuple(first), tuple(second)) for first, second in strata if first and second]
    if not both:
        return None
    breakpoints = _breakpoints(both)
    low, high = _middle_range(breakpoints)
    p, balance = _test(both)
    return Comparison(
        ratio=_middle(breakpoints),
        interval=_interval(both, breakpoints),
        p=p,
        balance=balance,
        sizes=_sizes(both),
        reached_sizes=_sizes([pair for pair in both if _half_reached(*pair)]),
        spread=log_spread(both),
        is_bound=low == 0 or math.isinf(high),
    )


def _sizes(strata: Sequence[Stratum]) -> tuple[tuple[int, int], ...]:
    return tuple((len(first), len(second)) for first, second in strata)


def _half_reached(first: Sequence[EpochRun], second: Sequence[EpochRun]) -> bool:
    """Whether at least half of the runs of a stratum reached the target."""
    runs = [*first, *second]
    return 2 * sum(run.reached for run in runs) >= len(runs)


def holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons, with p-values adjusted for all of them together that could find anything."""
    able = [comparison.least_p <= LEVEL for comparison in comparisons]
    adjusted = iter(holm_p([comparison.p for comparison, can in zip(comparisons, able, strict=True) if can]))
    return [
        replace(comparison, p=next(adjusted), together=sum(able)) if can else comparison
        for comparison, can in zip(comparisons, able, strict=True)
    ]


def holm_p(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for all together (Holm, Scandinavian Journal of Statistics 6, 1979), in the same order."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, largest = list(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def p_value(strata: Sequence[Stratum], factor: float = 1.0) -> float:
    """The chance of a difference at least as large, if the second series' epochs times ``factor`` were the first's."""
    return _test(strata, factor)[0]


def _test(strata: Sequence[Stratum], factor: float = 1.0) -> tuple[float, int]:
    """The p-value, and the sum over pairs that it is of."""
    total, chances = 0, np.ones(1)
    for first, second in strata:
        low, high = _ends(first, second, factor)
        more = low[:, None] >= high[None, :]
        scores = more.sum(1) - more.sum(0)
        total += int(scores[: len(first)].sum())
        chances = np.convolve(chances, _sums(scores, len(first)))
    middle = len(chances) // 2
    away = np.abs(np.arange(len(chances)) - middle)
    return min(1.0, float(chances[away >= abs(total)].sum())), total


def log_spread(strata: Sequence[Stratum]) -> float:
    """Standard deviation between seeds of the logarithm of epochs; infinite if no group has two runs that reached.

    The runs that reached the target are the fast ones, and alone they scatter too little. So a run that missed it
    counts at the epochs that it made, and is no degree of freedom, as in the likelihood of a censored normal sample.
    The result is no less than what rounding to evaluations alone would give.
    """
    squares, degrees, rounding = 0.0, 0, 0.0
    for group in (group for stratum in strata for group in stratum):
        reached = [run for run in group if run.reached]
        for run in reached:
            rounding = max(rounding, (run.up_to - run.above) / (run.up_to + run.above) * 2 / math.sqrt(12))
        made = [run.above for run in group if not run.reached and run.above > 0]
        logs = np.log([*((run.above + run.up_to) / 2 for run in reached), *made])
        if reached and len(logs) > 1:
            squares += float(((logs - logs.mean()) ** 2).sum())
            degrees += len(reached) - 1
    return max(math.sqrt(squares / degrees), rounding) if degrees else math.inf


def _ends(first: Sequence[EpochRun], second: Sequence[EpochRun], factor: float) -> tuple[Floats, Floats]:
    low = np.array([*(run.above for run in first), *(factor * run.above for run in second)])
    high = np.array([*(run.up_to for run in first), *(factor * run.up_to for run in second)])
    return low, high


def _sums(scores: npt.NDArray[np.int64], chosen: int) -> Floats:
    """The chance of each sum of ``chosen`` of the scores, which add up to zero; the middle entry is for sum zero."""
    reach = int(np.abs(scores).sum()) // 2
    ways = np.zeros((chosen + 1, 2 * reach + 1))
    ways[0, reach] = 1
    for score in scores:
        up, down = max(score, 0), max(-score, 0)
        more = ways[:-1, down : ways.shape[1] - up].copy()
        ways[1:, up : ways.shape[1] - down] += more
    return np.asarray(ways[chosen] / ways[chosen].sum())


def _breakpoints(strata: Sequence[Stratum]) -> Floats:
    """The factors at which the sum over pairs changes by one, ascending; it falls as the factor grows."""
    factors = []
    for first, second in strata:
        for one in first:
            for other in second:
                factors.append(one.above / other.up_to if other.up_to > 0 else 0.0)
                factors.append(one.up_to / other.above if other.above > 0 else math.inf)
    return np.sort(np.array(factors))


def _middle_range(breakpoints: Floats) -> Interval:
    """The factors between which as many pairs count for the first series as against it; 0 or infinite: open."""
    half = len(breakpoints) // 2
    return float(breakpoints[half - 1]), float(breakpoints[half])


def _middle(breakpoints: Floats) -> float:
    """The middle of ``_middle_range``, or the end that is known."""
    low, high = _middle_range(breakpoints)
    return math.sqrt(low * high) if low > 0 and math.isfinite(high) else low if low > 0 else high


def _interval(strata: Sequence[Stratum], breakpoints: Floats) -> Interval:
    """The smallest and the largest factor at which no difference is found."""
    edges = np.unique(breakpoints[(breakpoints > 0) & np.isfinite(breakpoints)])
    if not len(edges):
        return 0.0, math.inf
    between = np.sqrt(edges[:-1] * edges[1:])
    tried = np.concatenate([edges[:1] / 2, between, edges[-1:] * 2])
    bounds = np.concatenate([[0.0], edges, [math.inf]])

    def is_kept(place: int) -> bool:
        return p_value(strata, float(tried[place])) > LEVEL

    middle = int(np.searchsorted(edges, _middle(breakpoints)))
    if not is_kept(middle):  # no factor makes the series alike, as when all evaluations are far apart
        middle = max(range(len(tried)), key=lambda place: p_value(strata, float(tried[place])))
    low = _last_kept(lambda place: is_kept(middle - place), middle + 1)
    high = _last_kept(lambda place: is_kept(middle + place), len(tried) - middle)
    return float(bounds[middle - low]), float(bounds[middle + high + 1])


def _last_kept(is_kept: Callable[[int], bool], count: int) -> int:
    """The last of ``count`` places that is kept, by bisection; place 0 is always kept."""
    kept, lost = 0, count
    while lost - kept > 1:
        half = (kept + lost) // 2
        kept, lost = (half, lost) if is_kept(half) else (kept, half)
    return kept


def _chances(sizes: Sequence[tuple[int, int]]) -> Floats:
    """The chance of each sum over pairs if no two runs are equal; the middle entry is for sum zero."""
    chances = np.ones(1)
    for first, second in sizes:
        ranks = np.arange(first + second)
        chances = np.convolve(chances, _sums(2 * ranks - (first + second - 1), first))
    return chances


def least_p(sizes: Sequence[tuple[int, int]]) -> float:
    """The smallest p-value that so many runs of two series at each batch size can give, two-sided, with ties or not.

    It is the chance of one assignment of the runs. Where both series have as many runs at every batch size, exchanging
    them gives the opposite sum, so the p-value has at least two assignments.
    """
    assignments = math.prod(math.comb(first + second, first) for first, second in sizes)
    alike = all(first == second for first, second in sizes)
    return min(1.0, (2 if alike else 1) / assignments)


def least_p_untied(sizes: Sequence[tuple[int, int]]) -> float:
    """The p-value of two series of which one always needs fewer epochs, and no two runs of a batch size are equal."""
    chances = _chances(sizes)
    pairs = sum(first * second for first, second in sizes)
    return min(1.0, 2 * float(chances[len(chances) // 2 + pairs]))


@lru_cache(maxsize=1024)
def _detectable(sizes: tuple[tuple[int, int], ...], level: float) -> float:
    """The difference of logarithms, in units of their standard deviation, that is found with probability ``POWER``.

    The scatter is taken to be normal. In each simulated study the test finds a difference once so many pairs count for
    it that equal series rarely reach that number: the difference that this study needs is that of the deciding pair.
    """
    chances = _chances(sizes)
    pairs = sum(first * second for first, second in sizes)
    away = np.abs(np.arange(len(chances)) - len(chances) // 2)
    rare = [total for total in range(pairs, -1, -1) if chances[away >= total].sum() <= level]
    if not rare:
        return math.inf
    random = np.random.default_rng(len(sizes))
    differences = np.concatenate(
        [
            (random.normal(size=(DRAWS, 1, second)) - random.normal(size=(DRAWS, first, 1))).reshape(DRAWS, -1)
            for first, second in sizes
        ],
        axis=1,
    )
    deciding = (pairs + rare[-1] + 1) // 2 - 1
    return float(np.quantile(np.partition(differences, deciding, axis=1)[:, deciding], POWER))
