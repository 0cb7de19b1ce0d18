"""The ratio of two noisy sums: its value, and how often its interval holds the truth, by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpcbench.measure.ratio_of_sums import ratio_of_sums

TRIALS = 400


def draw(truth: float, count: int, noise: float, random: np.random.Generator) -> tuple[list[float], list[float]]:
    """Measurements whose denominators have the mean 1 and may be far below zero; neighbours depend on each other."""
    shared = np.repeat(random.normal(size=-(-count // 4)), 4)[:count]
    below = 1 + noise * (0.5 * shared + random.normal(size=count))
    return list(truth * (1 + 0.3 * random.normal(size=count))), list(below)


@pytest.mark.parametrize(("count", "noise"), [(200, 1.0), (400, 3.0), (400, 10.0), (8, 0.5)])
def test_the_interval_holds_the_truth_in_95_of_100_cases(count: int, noise: float) -> None:
    random, held = np.random.default_rng([count, round(noise)]), 0
    for _ in range(TRIALS):
        found = ratio_of_sums(*draw(1000, count, noise, random))
        assert found is not None
        assert found.low <= found.value <= found.high
        held += found.low <= 1000 <= found.high
    assert 0.92 <= held / TRIALS <= 0.99


def test_a_truth_of_1000_is_found_where_single_ratios_are_useless() -> None:
    random = np.random.default_rng(3)
    above, below = draw(1000, 4000, 3, random)
    assert np.mean(np.array(below) < 0) > 0.3
    found = ratio_of_sums(above, below)
    assert found is not None
    assert found.value == pytest.approx(1000, rel=0.15)
    assert found.bounded
    assert found.high / found.low < 1.6


def test_a_denominator_that_may_be_zero_leaves_the_interval_open() -> None:
    found = ratio_of_sums([30.0, 31.0, 29.0, 30.0] * 5, [-2.0, 2.5, -1.5, 1.2] * 5)
    assert found is not None
    assert math.isinf(found.high)
    assert 0 < found.low < found.value
    negative = ratio_of_sums([30.0, 31.0, 29.0], [-1.0, -2.0, -1.5])
    assert negative is not None
    assert (negative.value, negative.low, negative.high) == (math.inf, 0.0, math.inf)


def test_equal_measurements_have_a_ratio_without_a_doubt_and_few_have_no_ends() -> None:
    found = ratio_of_sums([20.0] * 30, [2.0] * 30)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((10, 10, 10))
    few = ratio_of_sums([20.0, 22.0], [2.0, 2.0])
    assert few is not None
    assert (few.value, few.low, few.high) == (10.5, 0.0, math.inf)
    assert ratio_of_sums([], []) is None


def test_what_the_interval_holds_does_not_depend_on_units() -> None:
    random = np.random.default_rng(5)
    above, below = draw(50, 60, 1, random)
    found, scaled = ratio_of_sums(above, below), ratio_of_sums([1e6 * each for each in above], below)
    assert found is not None
    assert scaled is not None
    for name in ("value", "low", "high"):
        assert getattr(scaled, name) == pytest.approx(1e6 * getattr(found, name))
