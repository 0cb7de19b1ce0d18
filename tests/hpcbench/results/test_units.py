"""Numbers as text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.results import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.012345, "0.0123"),
        (4.5, "4.50"),
        (1234.5, "1,230"),
        (9.996, "10.0"),
        (99.97, "100"),
        (0, "0"),
        (-2.5, "-2.50"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert units.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0731, "7.3 %"), (1.2, "120.0 %"), (0.0004, "< 0.1 %"), (0.0, "0.0 %"), (None, "-"), (math.nan, "-")],
)
def test_a_share_that_is_tiny_is_not_nothing(value: float | None, text: str) -> None:
    assert units.small_percent(value) == text


@given(st.floats(1e-4, 1e12))
def test_rounding_is_within_half_a_unit_of_the_third_digit(value: float) -> None:
    assert float(units.significant(value).replace(",", "")) == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0832, "83.2 ms"), (4.214, "4.21 s"), (99.96, "1 min 40 s"), (192, "3 min 12 s"), (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"), (None, "-"), (math.nan, "-"),
    ],
)  # fmt: skip
def test_durations_read_as_people_say_them(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


def test_published_counts() -> None:
    assert units.integer(8_907_556) == "8,907,556"
    assert units.prefixed(68.86e9, "FLOP") == "68.9 GFLOP"
    assert units.prefixed(1.964e12, "FLOP") == "1.96 TFLOP"
    assert units.size(128**3 * 4 * 2) == "16.0 MiB"
    assert units.score(0.124) == "0.124"
    assert units.score(0.8213) == "0.8213"
    assert units.metric(0.305) == "0.3050"
    assert units.percent(0.0731) == "7.3 %"
