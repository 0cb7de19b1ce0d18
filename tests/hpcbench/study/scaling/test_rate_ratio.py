"""The interval of an efficiency holds it in 19 of 20 studies, and variants that are alike are seldom told apart."""

from __future__ import annotations

import math
from itertools import starmap

import numpy as np
import pytest
from scipy import stats

from hpcbench.study.scaling.figure_findings import throughput_finding
from hpcbench.study.scaling.point_results import PointResult, compare_variants, efficiency_interval
from hpcbench.study.scaling.rate_ratio import difference_p, rate_ratio, ratio_p
from tests.hpcbench.study.scaling.test_table import point

STUDIES = 2000
ERROR = math.sqrt(0.05 * 0.95 / STUDIES)
"""Standard error of a share of 5 % of so many studies."""
TRUE = 0.8


def repeats(random: np.random.Generator, count: int, scatter: float) -> np.ndarray:
    """Throughputs of many studies, (studies, count), around 1."""
    return np.exp(random.normal(0, scatter, (STUDIES, count)))


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("scatter", [0.02, 0.1])
def test_the_interval_holds_the_efficiency_in_19_of_20_studies(count: int, scatter: float) -> None:
    """The smallest size scatters by 2 %, the largest by as much or by five times as much."""
    random = np.random.default_rng(count)
    small, large = 100 * repeats(random, count, 0.02), 400 * TRUE * repeats(random, count, scatter)
    held = 0
    for before, after in zip(small, large, strict=True):
        interval = efficiency_interval(point(4, *after), point(1, *before))
        held += interval is not None and interval[0] <= TRUE <= interval[1]
    # Two repeats, and scatters that differ much, are where Welch's approximation is at its worst.
    allowed = 0.02 if count == 2 else 0.01
    assert held / STUDIES >= 0.95 - allowed - 3 * ERROR
    if count >= 5:
        assert held / STUDIES <= 0.95 + allowed + 3 * ERROR


def test_a_drift_that_all_share_widens_the_interval() -> None:
    random = np.random.default_rng(7)
    drift = np.linspace(0.9, 1.1, 5)
    small, large = drift * repeats(random, 5, 0.02), TRUE * drift * repeats(random, 5, 0.02)
    found = list(starmap(rate_ratio, zip(large, small, strict=True)))
    held = [each is not None and each.interval[0] <= TRUE <= each.interval[1] for each in found]
    assert np.mean(held) > 0.99


@pytest.mark.parametrize("variants", [2, 5])
def test_variants_that_are_alike_are_told_apart_in_at_most_one_of_twenty_studies(variants: int) -> None:
    random = np.random.default_rng(variants)
    rates = [repeats(random, 3, 0.05) for _ in range(variants)]
    told = 0
    for study in range(STUDIES):
        rows = [point(2, *rates[number][study], variant=str(number)) for number in range(variants)]
        found = compare_variants(rows)
        assert found is not None
        told += found.is_clear
    assert told / STUDIES <= 0.05 + 3 * ERROR


def test_variants_that_differ_are_told_apart() -> None:
    found = compare_variants([point(2, 118.0, 120.0, 122.0, variant="a"), point(2, 99.0, 100.0, 101.0, variant="b")])
    assert found is not None
    assert (found.best.variant, found.slowest.variant, found.factor, found.is_clear) == ("a", "b", 1.2, True)
    assert compare_variants([point(2, 100.0), point(2, left=3)]) is None


def test_p_and_interval_are_those_of_the_t_test_of_scipy() -> None:
    random = np.random.default_rng(5)
    one, other = random.lognormal(0, 0.1, 7), random.lognormal(0.05, 0.3, 4)
    found, expected = rate_ratio(one, other), stats.ttest_ind(np.log(one), np.log(other), equal_var=False)
    assert found is not None
    assert found.p == pytest.approx(expected.pvalue)
    ends = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx((math.exp(ends.low), math.exp(ends.high)))


@pytest.mark.parametrize("variants", [2, 4])
def test_speed_ups_that_are_alike_are_named_in_at_most_one_of_twenty_studies(variants: int) -> None:
    random, named = np.random.default_rng(variants), 0
    small, large = ([repeats(random, 3, 0.05) for _ in range(variants)] for _ in range(2))
    for study in range(STUDIES):
        rows = [point(size, *rates[number][study], variant=f"v{number}")
                for size, rates in ((1, small), (4, large)) for number in range(variants)]  # fmt: skip
        named += "(v" in throughput_finding(rows)
    assert named / STUDIES <= 0.05 + 3 * ERROR


def test_welch_s_p_of_values_is_that_of_scipy() -> None:
    random = np.random.default_rng(6)
    one, other = random.normal(0, 0.1, 5), random.normal(0.1, 0.3, 4)
    assert difference_p(one, other) == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue)
    assert difference_p([1.0], [2.0, 3.0]) is None
    assert ratio_p([[1.0, 2.0]], [[0.0, 1.0]]) is None


def test_single_repeats_tell_nothing_and_equal_ones_are_equal() -> None:
    assert rate_ratio([1.0], [2.0, 2.0]) is None
    found = rate_ratio([2.0, 2.0], [1.0, 1.0])
    assert found is not None
    assert (found.ratio, found.p) == (pytest.approx(2.0), 0.0)


def test_the_smallest_size_has_no_interval_and_instances_that_were_pruned_count() -> None:
    first = point(1, 99.0, 101.0)
    assert efficiency_interval(first, first) is None
    assert efficiency_interval(point(2, 150.0), first) is None
    pruned = PointResult(4, "", point(4, 200.0, 202.0).runs, instances=4)
    low, high = efficiency_interval(pruned, first) or (0.0, 0.0)
    assert low < 201 / 400 < high
