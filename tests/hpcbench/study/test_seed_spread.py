"""The spread between seeds and its trend: how often the intervals hold the truth, by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpcbench.study.seed_spread import resolved_spread, spread, spread_interval, spread_trend

TRIALS = 400
Rows = list[tuple[int, list[float]]]


def draw(random: np.random.Generator, seeds: int, deviation: float, growth: float = 1.0, step: float = 1 / 8) -> Rows:
    """Six batches over a factor of 32, whose spread grows ``growth`` times from the first to the last."""
    found = []
    for place in range(6):
        here = deviation * growth ** (place / 5)
        epochs = 3 * (1 + place) * random.gamma(here**-2, here**2, seeds)
        found.append((8 * 2**place, [float(each) for each in np.ceil(epochs / step) * step]))
    return found


def test_a_spread_is_that_of_the_sample_and_equal_values_hide_it() -> None:
    assert spread([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)
    assert spread([9.0]) is None
    assert resolved_spread([9.0, 11.0], 1.0) == spread([9.0, 11.0])
    assert resolved_spread([9.0, 9.0, 9.0], 1 / 8) is None


@pytest.mark.parametrize(("seeds", "deviation"), [(3, 0.1), (5, 0.05), (10, 0.2)])
def test_the_interval_of_a_spread_holds_the_truth_in_95_of_100_cases(seeds: int, deviation: float) -> None:
    random, held, tried = np.random.default_rng(seeds), 0, 0
    for _ in range(TRIALS // 4):
        for _, epochs in draw(random, seeds, deviation):
            low, high = spread_interval(epochs, 1 / 8) or (1.0, 0.0)
            held, tried = held + (low <= deviation <= high), tried + 1
    assert 0.925 <= held / tried <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "deviation", "step"), [(5, 0.1, 1 / 8), (3, 0.1, 1 / 8), (10, 0.12, 0.5)])
def test_no_trend_is_seen_where_there_is_none(seeds: int, deviation: float, step: float) -> None:
    random = np.random.default_rng(seeds)
    found = [trend for _ in range(TRIALS) if (trend := spread_trend(draw(random, seeds, deviation, step=step), step))]
    assert len(found) > 0.7 * TRIALS
    seen = np.mean([trend.changes for trend in found])
    assert seen <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / len(found))
    assert np.mean([trend.interval[0] <= 1 <= trend.interval[1] for trend in found]) >= 0.92


def test_a_spread_that_grows_threefold_is_seen_with_ten_seeds() -> None:
    random = np.random.default_rng(2)
    found = [spread_trend(draw(random, 10, 0.1, growth=3.0), 1 / 8) for _ in range(100)]
    known = [trend for trend in found if trend is not None]
    assert len(known) == 100
    assert np.mean([trend.changes and trend.ratio > 1 for trend in known]) >= 0.85
    assert np.mean([trend.interval[0] <= 3 <= trend.interval[1] for trend in known]) >= 0.88
    assert (known[0].smallest, known[0].largest) == (8, 256)


def test_where_evaluations_or_batches_are_too_few_nothing_is_said() -> None:
    random = np.random.default_rng(3)
    assert spread_trend(draw(random, 5, 0.03, step=1.0), 1.0) is None
    assert spread_trend(draw(random, 5, 0.1)[:2], 1 / 8) is None
    assert spread_trend([(8, [3.0]), (16, [3.0]), (32, [4.0])], 1 / 8) is None
    assert spread_interval([3.0], 1 / 8) is None
