"""The ratio of two noisy sums over the steps of a run, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
MOST_BLOCKS = 20
LEAST_BLOCKS = 3


@dataclass(frozen=True)
class RatioOfSums:
    """The ratio, infinite if its denominator is not above zero, and its 95 % interval."""

    value: float
    low: float
    """0 if there is no lower bound."""
    high: float
    """Infinite if the denominator may be zero."""

    @property
    def bounded(self) -> bool:
        """Whether the interval has both ends."""
        return self.low > 0 and math.isfinite(self.high)


def ratio_of_sums(numerators: Sequence[float], denominators: Sequence[float]) -> RatioOfSums | None:
    """Divide the sum of ``numerators`` by that of ``denominators``, measured together, in the order of the steps.

    The interval is Fieller's ("Some problems in interval estimation", Journal of the Royal Statistical Society B 16,
    1954), from the sums of up to 20 blocks of consecutive steps, since neighbours may depend on each other. A ratio
    below 0 counts as 0. Returns ``None`` without measurements; with fewer than three the interval is open at both ends.
    """
    if not len(numerators):
        return None
    above, below = float(np.sum(numerators)), float(np.sum(denominators))
    value = max(0.0, above / below) if below > 0 else math.inf
    blocks = min(MOST_BLOCKS, len(numerators))
    if blocks < LEAST_BLOCKS:
        return RatioOfSums(value, 0.0, math.inf)
    both = np.array([numerators, denominators], dtype=np.float64)
    sums = np.stack([part.sum(1) for part in np.array_split(both, blocks, axis=1)], axis=1)
    from hpcbench.probability import student_quantile  # a rank starts without SciPy

    bound = float(student_quantile((1 + CONFIDENCE) / 2, blocks - 1)) ** 2 * blocks
    (var_above, shared), (_, var_below) = bound * np.cov(sums)
    # All ratios r with (above - r below)^2 <= bound x the variance of above - r below.
    a, b, c = below**2 - var_below, above * below - shared, above**2 - var_above
    inside = b**2 - a * c
    if a <= 0 or below < 0:
        # The denominator may be zero, so the interval contains unbounded ratios; those excluded lie below the others.
        low = (b - math.sqrt(inside)) / a if a < 0 < inside and below > 0 else 0.0
        return RatioOfSums(value, max(0.0, low) if low <= value else 0.0, math.inf)
    half = math.sqrt(max(0.0, inside))
    return RatioOfSums(value, max(0.0, (b - half) / a), max(0.0, (b + half) / a))
