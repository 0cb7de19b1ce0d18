"""How sure a ratio of two throughputs is: Welch's interval and p-value from the logarithms of the repeats.

Repeats of two sizes, or of two variants, are two independent samples whose scatter may differ (Welch, Biometrika 34,
1947). Where both drift together, as on a machine that warms up, the interval is wider than it needs to be.
``tests/hpcbench/study/scaling/test_rate_ratio.py`` simulates how often it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
LEAST_REPEATS = 2


@dataclass(frozen=True)
class RateRatio:
    """A ratio of two throughputs: of their geometric means, with its 95 % interval."""

    ratio: float
    interval: tuple[float, float]
    p: float
    """Two-sided p-value of no difference."""


@dataclass(frozen=True)
class _Contrast:
    """The sum of some means less that of others, with its standard error and Welch's degrees of freedom."""

    middle: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        """Two-sided p-value of no difference."""
        from hpcbench.probability import student_tail  # a status needs no SciPy

        if self.error == 0:
            return 1.0 if self.middle == 0 else 0.0
        return min(1.0, 2 * float(student_tail(abs(self.middle) / self.error, self.freedom)))


def rate_ratio(rates: Sequence[float], base: Sequence[float]) -> RateRatio | None:
    """The ratio of ``rates`` over ``base``, one number per repeat; ``None`` if either has fewer than two repeats."""
    found = _contrast([np.log(np.asarray(rates))], [np.log(np.asarray(base))])
    if found is None:
        return None
    from hpcbench.probability import student_quantile  # a status needs no SciPy

    away = float(student_quantile((1 + CONFIDENCE) / 2, found.freedom)) * found.error if found.error else 0.0
    middle = found.middle
    return RateRatio(math.exp(middle), (math.exp(middle - away), math.exp(middle + away)), found.p)


def ratio_p(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]]) -> float | None:
    """Two-sided p-value that the product of ``above`` is that of ``below``, each the repeats of one figure.

    ``None`` if one has fewer than two repeats, or a figure that is not positive.
    """
    if any(value <= 0 for repeats in (*above, *below) for value in repeats):
        return None
    found = _contrast([np.log(repeats) for repeats in above], [np.log(repeats) for repeats in below])
    return None if found is None else found.p


def difference_p(values: Sequence[float], base: Sequence[float]) -> float | None:
    """Welch's two-sided p-value of equal means; ``None`` if either has fewer than two repeats."""
    found = _contrast([np.asarray(values)], [np.asarray(base)])
    return None if found is None else found.p


def _contrast(above: Sequence[np.ndarray], below: Sequence[np.ndarray]) -> _Contrast | None:
    samples = [*above, *below]
    if min(map(len, samples)) < LEAST_REPEATS:
        return None
    middle = float(sum(each.mean() for each in above) - sum(each.mean() for each in below))
    parts = np.array([each.var(ddof=1) / len(each) for each in samples])
    error = math.sqrt(parts.sum())
    freedom = float(parts.sum() ** 2 / (parts**2 / [len(each) - 1 for each in samples]).sum()) if error else math.inf
    return _Contrast(middle, error, freedom)
