"""The interval of a ratio of times holds what it should, on machines that drift and stumble."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hpcbench.study.gains.step_ratio import mean_difference, step_ratio

STUDIES = 600
ERROR = math.sqrt(0.05 * 0.95 / STUDIES)
"""Standard error of a share of 5 % of so many studies."""
RATIO = 0.8


def simulated(noise: str, repeats: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Times of a step of an option and of the baseline, (studies, repeats): 2 % of noise, and 10 % of drift."""
    random = np.random.default_rng(seed)
    shape = (2, STUDIES, repeats)
    if noise == "normal":
        logs = random.normal(0, 0.02, shape)
    elif noise == "heavy":
        logs = 0.02 * random.standard_t(3, shape)
    else:  # one run of ten is held up by a neighbour, for a fifth of its time
        logs = random.normal(0, 0.02, shape) + np.where(random.random(shape) < 0.1, 0.2, 0.0)
    drift = np.linspace(0, 0.1, repeats)
    times = 0.1 * np.exp(logs + drift)
    return RATIO * times[0], times[1]


@pytest.mark.parametrize("repeats", [3, 6, 10])
@pytest.mark.parametrize("noise", ["normal", "heavy", "stumbling"])
def test_the_interval_holds_the_ratio_in_19_of_20_studies(noise: str, repeats: int) -> None:
    option, baseline = simulated(noise, repeats, seed=repeats)
    found = [step_ratio(one, other) for one, other in zip(option, baseline, strict=True)]
    held = np.mean([each is not None and each.interval[0] <= RATIO <= each.interval[1] for each in found])
    # Tails and stumbles make intervals too wide, not too narrow.
    assert held >= 0.95 - 3 * ERROR
    if noise == "normal":
        assert held <= 0.95 + 3 * ERROR


def test_an_option_that_changes_nothing_is_seen_in_one_of_twenty_studies() -> None:
    option, baseline = simulated("normal", 6, seed=1)
    found = [step_ratio(one / RATIO, other) for one, other in zip(option, baseline, strict=True)]
    assert np.mean([each is not None and each.p <= 0.05 for each in found]) == pytest.approx(0.05, abs=3 * ERROR)


def test_drift_between_repeats_is_in_no_interval() -> None:
    steady, drifting = np.full(6, 0.1), 0.1 * np.linspace(1, 2, 6)
    noise = np.exp(np.random.default_rng(3).normal(0, 0.01, 6))
    still, moved = step_ratio(0.5 * steady * noise, steady), step_ratio(0.5 * drifting * noise, drifting)
    assert still is not None
    assert moved is not None
    assert moved.interval == pytest.approx(still.interval, rel=1e-9)


def test_p_and_interval_are_those_of_the_t_test_of_scipy() -> None:
    random = np.random.default_rng(5)
    option, baseline = random.lognormal(0, 0.1, 7), random.lognormal(0.05, 0.1, 7)
    found, expected = step_ratio(option, baseline), stats.ttest_rel(np.log(option), np.log(baseline))
    assert found is not None
    assert found.p == pytest.approx(expected.pvalue)
    ends = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx((math.exp(ends.low), math.exp(ends.high)))


def test_one_pair_tells_nothing_and_equal_times_are_equal() -> None:
    assert step_ratio([0.1], [0.2]) is None
    found = step_ratio([0.1, 0.1], [0.1, 0.1])
    assert found is not None
    assert (found.ratio, found.p) == (1.0, 1.0)


def test_a_difference_is_clear_where_its_interval_leaves_out_zero() -> None:
    assert mean_difference([1.0, 1.1, 0.9], [2.0, 2.1, 1.9]) == (pytest.approx(-1.0), True)
    assert mean_difference([1.0, 3.0], [2.0, 2.1])[1] is False
    assert mean_difference([1.0], [2.0]) == (-1.0, False)
