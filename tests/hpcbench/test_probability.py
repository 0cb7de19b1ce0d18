"""The distributions against those of ``scipy.stats``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from hpcbench import probability as d

CHANCES = st.floats(1e-12, 1 - 1e-9)
FREEDOMS = st.integers(1, 100_000)
VALUES = st.floats(0, 100)


@given(CHANCES, FREEDOMS, st.floats(-50, 50))
@example(1 - 1e-9, 1, 0.0)
@example(0.5, 3, 1e-8)
def test_student(chance: float, freedom: int, value: float) -> None:
    assert d.student_quantile(chance, freedom) == pytest.approx(stats.t.ppf(chance, freedom), rel=1e-7, abs=1e-10)
    assert d.student_tail(value, freedom) == pytest.approx(stats.t.sf(value, freedom), rel=1e-9, abs=1e-300)
    assert d.student_log_density(value, freedom) == pytest.approx(stats.t.logpdf(value, freedom), rel=1e-9)


@given(CHANCES, FREEDOMS, VALUES)
def test_chi_squared(chance: float, freedom: int, value: float) -> None:
    assert d.chi_squared_quantile(chance, freedom) == pytest.approx(stats.chi2.ppf(chance, freedom), rel=1e-9)
    assert d.chi_squared_tail(value, freedom) == pytest.approx(stats.chi2.sf(value, freedom), rel=1e-9, abs=1e-300)


@pytest.mark.filterwarnings("ignore:Error in function cdf")  # of a series in ``scipy.stats`` that does not converge
@given(st.floats(0.001, 0.999), st.integers(1, 500), st.integers(1, 500), VALUES, st.floats(0.01, 1e4))
@example(0.5, 1, 1, 0.1875, 1328.0)  # where ``scipy.special.ncfdtr`` gives up
def test_f(chance: float, above: int, below: int, value: float, noncentrality: float) -> None:
    assert d.f_quantile(chance, above, below) == pytest.approx(stats.f.ppf(chance, above, below), rel=1e-6)
    assert d.f_tail(value, above, below) == pytest.approx(stats.f.sf(value, above, below), rel=1e-9, abs=1e-300)
    expected = stats.ncf.sf(value, above, below, noncentrality)
    assert d.noncentral_f_tail(value, above, below, noncentrality) == pytest.approx(expected, abs=1e-9)
    central = d.noncentral_f_tail(value, above, below, 0.0)  # where ``scipy.stats`` may return less than zero
    assert central == pytest.approx(stats.f.sf(value, above, below), abs=1e-9)


@given(st.integers(1, 500), st.integers(1, 500), VALUES, st.floats(0.01, 1e4))
def test_the_sum_for_what_is_lost_is_right_everywhere(
    above: int, below: int, value: float, noncentrality: float
) -> None:
    found = 1 - d._noncentral_f_sum(value, above, below, noncentrality)
    assert found == pytest.approx(d.noncentral_f_tail(value, above, below, noncentrality), abs=1e-8)


def test_arrays_are_broadcast_and_freedom_may_be_infinite() -> None:
    values, freedoms = np.linspace(-3, 3, 5)[:, None], np.array([1, 4, np.inf])
    np.testing.assert_allclose(d.student_log_density(values, freedoms), stats.t.logpdf(values, freedoms), rtol=1e-12)
    np.testing.assert_allclose(d.student_quantile(0.75, freedoms), stats.t.ppf(0.75, freedoms), rtol=1e-12)
    chances = 1 - 0.05 / (2 * np.arange(10, 15))
    np.testing.assert_allclose(d.student_quantile(chances, np.arange(5, 10)), stats.t.ppf(chances, np.arange(5, 10)))


@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_error_of_an_olympic_mean_is_that_of_simulated_ones(count: int) -> None:
    drawn = np.sort(np.random.default_rng(2).standard_normal((200_000, count)), axis=1)
    assert d.olympic_error(count) == pytest.approx(drawn[:, 1:-1].mean(axis=1).std(), rel=0.006)


@pytest.mark.parametrize("number", [1, 2, 10, 100_000])
def test_the_largest_of_many(number: int) -> None:
    drawn = d.largest_draws(np.random.default_rng(3), number, 20_000)
    assert np.isfinite(drawn).all()
    assert np.mean(drawn) == pytest.approx(float(d.expected_largest(number)), abs=0.03)
    # the chance that all of them are below a value is that of one, to the power of their number
    for value in np.quantile(drawn, (0.1, 0.5, 0.9)):
        assert np.mean(drawn <= value) == pytest.approx(stats.norm.cdf(value) ** number, abs=0.02)
