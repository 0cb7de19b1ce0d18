"""Qualities after equal samples: an exact test, by scipy's and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hpcbench.study.gains.quality_comparison import least_p, quality_test, seeds_needed


@pytest.mark.parametrize("seeds", [3, 5, 6])
def test_p_is_that_of_the_exact_rank_sum_test(seeds: int) -> None:
    random = np.random.default_rng(seeds)
    for _ in range(10):
        option, baseline = random.normal(0.4, 0.02, seeds).tolist(), random.normal(0.42, 0.02, seeds).tolist()
        found = quality_test(option, baseline, "lower")
        assert found is not None
        assert found.p == pytest.approx(stats.mannwhitneyu(option, baseline, method="exact").pvalue)


def test_equal_qualities_are_told_apart_in_at_most_one_study_of_twenty() -> None:
    random = np.random.default_rng(11)
    draws = random.normal(0.4, 0.02, (600, 2, 6))
    found = [quality_test(option.tolist(), baseline.tolist(), "lower") for option, baseline in draws]
    assert np.mean([each is not None and each.p <= 0.05 for each in found]) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 600)
    moved = [quality_test((option + 0.06).tolist(), baseline.tolist(), "lower") for option, baseline in draws]
    assert np.mean([each is not None and each.p <= 0.05 and each.worse for each in moved]) > 0.95


def test_worse_depends_on_what_is_better() -> None:
    high, low = [0.5, 0.51, 0.52, 0.53], [0.4, 0.41, 0.42, 0.43]
    lower, higher = quality_test(high, low, "lower"), quality_test(high, low, "higher")
    assert lower is not None
    assert higher is not None
    assert (lower.worse, higher.worse) == (True, False)
    assert lower.p == higher.p == pytest.approx(2 / math.comb(8, 4))


def test_a_run_that_diverged_is_worse_than_any_other() -> None:
    found = quality_test([None] * 4, [0.4, 0.5, 0.6, 0.7], "higher")
    assert found is not None
    assert (found.worse, found.p) == (True, pytest.approx(2 / 70))
    alike = quality_test([None, None], [None, None], "lower")
    assert alike is not None
    assert alike.p == 1


def test_without_runs_nothing_is_compared() -> None:
    assert quality_test([], [0.4], "lower") is None


def test_seeds_that_can_show_something() -> None:
    # 2 / (8 choose 4) is 0.029, and 2 / (6 choose 3) 0.1; of ten comparisons the smallest must be below 0.005.
    assert least_p(3, 3) == pytest.approx(0.1)
    assert [seeds_needed(comparisons) for comparisons in (1, 2, 6, 10)] == [4, 5, 5, 6]
