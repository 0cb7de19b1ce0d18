"""Projections from few epochs of one's own: how often the next submission lies within the interval."""

from __future__ import annotations

import numpy as np
import pytest

from hpcbench.prediction.epochs import fit_spreads
from hpcbench.submission.projection import Costs, olympic_rows, own_known_epochs, project
from hpcbench.submission.published_ratios import published_entries


@pytest.fixture(scope="module")
def scatter() -> float:
    return fit_spreads(published_entries()).seeds


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_submissions_lie_within_the_interval_as_often_as_it_says(count: int, scatter: float) -> None:
    """Seeds scatter as the published ones do; 90 % within, by 1,000 submissions to about 1 %."""
    random, inside, trials = np.random.default_rng(5), 0, 1000
    for trial in range(trials):
        epochs = 22 * np.exp(scatter * random.standard_normal(count + 10))
        rates = 1000 * np.exp(0.024 * random.standard_normal(20))
        known = own_known_epochs(epochs[:count].tolist(), scatter)
        found = project(known, Costs(tuple(rates[:10]), 5.0, 30.0, 100_000), 10, seed=trial, draws=400)
        times = 30 + epochs[count:] * (100_000 / rates[10:] + 5)
        inside += found.low_min <= float(olympic_rows(times[None])[0]) / 60 <= found.high_min
    assert 0.85 <= inside / trials <= 0.96


def test_one_value_takes_the_scatter_of_published_seeds_alone(scatter: float) -> None:
    known = own_known_epochs([22.0], scatter)
    assert known.source == "1 given, its scatter is the 6.7 % of published seeds alone"
    found = project(known, Costs((1000.0,) * 5, 5.0, 30.0, 100_000), 10)
    assert found.high_min / found.low_min > 1.2
