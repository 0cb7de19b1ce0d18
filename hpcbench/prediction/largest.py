"""The largest of many: slowest of N ranks in a step, last of M runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]


def expected_largest(count: ArrayLike) -> Floats:
    """The expected largest of ``count`` standard normal numbers: 0 for one (Blom, 1958; within 0.04)."""
    count = np.asarray(count, float)
    largest: Floats = np.asarray(ndtri((count - 0.375) / (count + 0.25)))
    return largest


def slowest_rank(spread: ArrayLike, ranks: ArrayLike) -> Floats:
    """The time of a step over that of a typical rank where each waits for the slowest: the largest of N lognormals.

    ``spread`` is the standard deviation of the logarithm of a rank's time.
    """
    factor: Floats = np.exp(np.asarray(spread) * expected_largest(ranks))
    return factor
