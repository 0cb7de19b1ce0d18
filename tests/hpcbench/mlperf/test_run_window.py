"""Which runs count of more than the rules ask for."""

from __future__ import annotations

import math
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from hpcbench.mlperf.convergence_check import olympic
from hpcbench.mlperf.run_window import median_window


def test_the_window_with_the_median_score_counts() -> None:
    """Windows of five of seven runs: olympic means 3, 4 and 5."""
    assert median_window([1, 2, 3, 4, 5, 6, 7], 5) == 1
    assert median_window([1, 2, 3, 4, 5], 5) == 0


def test_of_two_windows_the_slower_counts() -> None:
    assert median_window([1, 2, 3, 4, 5, 6], 5) == 1
    assert median_window([6, 5, 4, 3, 2, 1], 5) == 0


def test_a_window_with_two_failed_runs_is_infinite() -> None:
    """The last two of four windows are, so that the median of the four is the third at best."""
    seconds = [10.0, 11.0, 12.0, 13.0, math.inf, 14.0, math.inf, 15.0]
    scores = [olympic(seconds[first : first + 5]) for first in range(4)]
    assert [math.isinf(score) for score in scores] == [False, False, True, True]
    assert median_window(seconds, 5) == 2


@given(st.lists(st.floats(1, 1e5), min_size=5, max_size=15).filter(lambda found: len(found) % 2 == 1))
def test_of_an_odd_number_of_windows_it_is_the_median(seconds: list[float]) -> None:
    scores = [olympic(seconds[first : first + 5]) for first in range(len(seconds) - 4)]
    assert scores[median_window(seconds, 5)] == median(scores)
