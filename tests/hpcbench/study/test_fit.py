"""The fit of epochs against batch size: exact on exact data, right intervals on simulated data, and plain words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from hpcbench.study.fit import fit_epochs
from staging.errors import InputError

BATCHES = (8, 32, 128, 512)


def simulate(
    rng: np.random.Generator, seeds: int = 3, spread: float = 0.1, recipes: float = 0.0
) -> tuple[list[float], list[float]]:
    """Runs of a model with E_min 10 epochs and B_crit 200; ``recipes`` shifts all the runs of a batch together."""
    batch = np.repeat(BATCHES, seeds)
    mean = 10 * (1 + batch / 200) * np.repeat(rng.normal(1, recipes, len(BATCHES)), seeds)
    return batch.tolist(), (mean * rng.normal(1, spread, len(batch))).tolist()


def coverage(draws: int, **options: float) -> tuple[float, float]:
    """How often the intervals hold E_min and B_crit."""
    rng = np.random.default_rng(11)
    hits = np.zeros(2)
    for _ in range(draws):
        fit = fit_epochs(*simulate(rng, **options))  # type: ignore[arg-type]
        hits += [
            fit.e_min_interval[0] <= 10 <= fit.e_min_interval[1],
            fit.b_crit_interval[0] <= 200 <= fit.b_crit_interval[1],
        ]
    return tuple(hits / draws)


def test_exact_epochs_give_exact_numbers() -> None:
    fit = fit_epochs([32, 64, 256, 256], [12 * (1 + size / 96) for size in (32, 64, 256, 256)])
    assert fit.e_min == pytest.approx(12, rel=1e-12)
    assert fit.b_crit == pytest.approx(96, rel=1e-12)
    assert fit.e_min_interval == pytest.approx((12, 12))
    assert fit.b_crit_interval == pytest.approx((96, 96), rel=1e-6)
    assert fit.predict([96]) == pytest.approx([24])
    assert np.allclose(fit.residuals, 0, atol=1e-12)
    assert (fit.n, fit.batches, fit.error, fit.note) == (4, 3, "runs", "")


def test_the_fit_maximises_the_likelihood_of_epochs_that_spread_by_a_part_of_their_mean() -> None:
    batch, epochs = (np.array(values) for values in simulate(np.random.default_rng(3)))
    fit = fit_epochs(batch.tolist(), epochs.tolist())

    def surprise(numbers: np.ndarray) -> float:
        mean = numbers[0] + numbers[1] * batch
        return float(-np.sum(stats.gamma.logpdf(epochs, a=100, scale=mean / 100))) if (mean > 0).all() else math.inf

    found = optimize.minimize(surprise, [5.0, 0.1], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert [fit.e_min, fit.slope] == pytest.approx(found.x, rel=1e-6)


def test_the_band_is_that_of_a_weighted_line() -> None:
    batch, epochs = (np.array(values) for values in simulate(np.random.default_rng(3)))
    fit = fit_epochs(batch.tolist(), epochs.tolist())
    low, high = fit.band([0.0])
    assert (low[0], high[0]) == pytest.approx(fit.e_min_interval)
    # With all weights put into the data, scipy's ordinary line through y / f against x / f is not at hand (it adds an
    # intercept), but curve_fit with known relative errors is the same estimate with the same covariance.
    best, covariance = optimize.curve_fit(
        lambda x, e_min, slope: e_min + slope * x, batch, epochs, sigma=fit.predict(batch)
    )
    assert [fit.e_min, fit.slope] == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(fit.covariance, covariance, rtol=1e-5)


def test_the_interval_is_fiellers() -> None:
    """Its ends are the values of B_crit that a t test of E_min - B_crit slope = 0 just rejects."""
    fit = fit_epochs(*simulate(np.random.default_rng(4)))
    assert fit.b_crit_interval[0] < fit.b_crit < fit.b_crit_interval[1] < math.inf
    for end in fit.b_crit_interval:
        contrast = np.array([1.0, -end])
        t = (fit.e_min - end * fit.slope) / math.sqrt(contrast @ fit.covariance @ contrast)
        assert 2 * stats.t.sf(abs(t), fit.n - 2) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("spread", [0.05, 0.2])
def test_intervals_hold_the_truth_in_95_of_100_studies(spread: float) -> None:
    # 400 draws of a true 95 % have a standard deviation of 1.1 %; the wider choice in doubt adds up to 2 %.
    for share in coverage(400, spread=spread):
        assert 0.925 <= share <= 0.99


def test_recipes_that_differ_between_batches_widen_the_intervals() -> None:
    for share in coverage(400, spread=0.05, recipes=0.1):
        assert 0.88 <= share <= 0.98


def test_twenty_seeds_do_not_hide_that_the_batches_miss_the_line() -> None:
    rng = np.random.default_rng(5)
    batch = np.repeat([32, 64, 128, 512, 1024], 20)
    mean = np.repeat([8.0, 18.0, 18.0, 23.0, 40.0], 20)
    fit = fit_epochs(batch.tolist(), (mean * rng.normal(1, 0.04, 100)).tolist())
    assert fit.error == "batches"
    assert fit.lack_of_fit_p < 1e-10
    assert "miss the line by more than seeds explain (p below 0.0001)" in fit.note
    assert fit.quantile == pytest.approx(stats.t.ppf(0.975, 3))


def test_a_misfit_is_announced_once_in_twenty_though_in_doubt_intervals_are_of_means() -> None:
    rng, said, widened = np.random.default_rng(14), 0, 0
    for _ in range(400):
        fit = fit_epochs(*simulate(rng, spread=0.05))
        said += "miss the line by more than seeds explain" in fit.note
        widened += fit.error == "batches"
        assert (fit.error == "batches") == ("so intervals are of their means" in fit.note)
    assert 0.02 <= said / 400 <= 0.083
    assert 0.14 <= widened / 400 <= 0.26


def test_rounding_up_adds_half_an_epoch_and_keeps_the_slope() -> None:
    rng = np.random.default_rng(6)
    batch = np.repeat(BATCHES, 300)
    epochs = np.ceil(10 * (1 + batch / 200) * rng.normal(1, 0.1, len(batch)))
    fit = fit_epochs(batch.tolist(), epochs.tolist())
    assert fit.e_min == pytest.approx(10.5, abs=0.1)
    assert fit.slope == pytest.approx(10 / 200, rel=0.02)
    assert fit.b_crit == pytest.approx(200 * 1.05, rel=0.03)


@pytest.mark.parametrize(("sizes", "said"), [([8, 8, 32], "2 batch sizes"), ([8, 8, 8], "1 batch size:"), ([], "0")])
def test_fewer_than_three_batches_are_not_fitted(sizes: list[float], said: str) -> None:
    fit = fit_epochs(sizes, [5.0 + size for size in sizes])
    assert all(map(math.isnan, (fit.e_min, fit.b_crit, *fit.e_min_interval, *fit.b_crit_interval)))
    assert fit.note.startswith(said)
    assert "reached the target at 3" in fit.note


def test_epochs_that_do_not_grow_have_no_critical_batch() -> None:
    rng = np.random.default_rng(7)
    epochs = 20 * rng.normal(1, 0.05, 12) - np.repeat([0, 0, 0, 2], 3)
    fit = fit_epochs(np.repeat(BATCHES, 3).tolist(), epochs.tolist())
    assert fit.b_crit == math.inf
    assert fit.e_min == pytest.approx(epochs.mean())
    assert fit.e_min_interval[0] < fit.e_min < fit.e_min_interval[1]
    assert fit.b_crit_interval[0] > 512
    assert fit.b_crit_interval[1] == math.inf
    assert "do not grow with the batch: B_crit is unbounded" in fit.note
    assert fit.predict([1, 1000]).tolist() == [fit.e_min] * 2


def test_a_slope_that_may_be_zero_has_no_upper_bound() -> None:
    fit = fit_epochs(np.repeat(BATCHES, 2).tolist(), [20, 22, 23, 20, 20, 23, 22, 22])
    assert 512 < fit.b_crit_interval[0] < fit.b_crit < fit.b_crit_interval[1] == math.inf
    assert "the slope may be zero: B_crit has no upper bound" in fit.note


def test_epochs_in_proportion_to_the_batch_leave_nothing_at_small_ones() -> None:
    fit = fit_epochs([8, 32, 128, 512], [2, 9, 40, 200])
    assert (fit.e_min, fit.b_crit, fit.b_crit_interval[0]) == (0, 0, 0)
    assert fit.b_crit_interval[1] < 512
    assert "E_min and B_crit are not above 0" in fit.note
    assert fit.predict([100])[0] > 0


def test_an_e_min_that_may_be_zero_has_no_lower_bound() -> None:
    fit = fit_epochs([64, 128, 256, 512], [4.5, 6.5, 15, 26])
    assert fit.e_min_interval[0] == fit.b_crit_interval[0] == 0
    assert 0 < fit.b_crit < fit.b_crit_interval[1] < 512
    assert fit.note == "E_min may be zero: B_crit has no lower bound"


def test_bad_observations_are_refused() -> None:
    with pytest.raises(InputError, match=r"one batch size and one number of epochs per run, not 3 and 2"):
        fit_epochs([8, 16, 32], [1, 2])
    with pytest.raises(InputError, match=r"a batch size of 0 cannot be fitted; it must be above 0"):
        fit_epochs([8, 0, 32], [1, 2, 3])
    with pytest.raises(InputError, match=r"a number of epochs of nan cannot be fitted"):
        fit_epochs([8, 16, 32], [1, math.nan, 3])
