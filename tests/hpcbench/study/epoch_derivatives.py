"""The log-likelihood of runs as a function of the logarithm of their mean epochs, for tests that compute it by hand."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hpcbench.study.epoch_likelihood import EpochLikelihood, Floats


class Derivatives(NamedTuple):
    """The log-likelihood and its derivatives with respect to its arguments."""

    value: float
    log_mean: Floats
    """With respect to the logarithm of the mean of each batch."""
    log_spread: float
    scatter: float


def derivatives(likelihood: EpochLikelihood, log_mean: Floats, log_spread: float, scatter: float) -> Derivatives:
    """``log_mean`` has one value for each batch size; ``scatter`` is not negative."""
    variance = math.exp(2 * log_spread)
    places = log_mean - (variance + scatter**2) / 2
    value, gradient, _ = likelihood.terms(places[None], np.array([log_spread]), np.array([scatter]))
    by_place, by_log_spread, by_scatter = gradient[0].T
    return Derivatives(
        float(value.sum()),
        by_place,
        float(by_log_spread.sum() - by_place.sum() * variance),
        float(by_scatter.sum() - by_place.sum() * scatter),
    )
