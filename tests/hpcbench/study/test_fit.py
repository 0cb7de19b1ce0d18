"""The fit of epochs against batch size: exact on exact data, right intervals on simulated data, and plain words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from hpcbench.study.epoch_likelihood import EpochLikelihood, log_interval
from hpcbench.study.epoch_profile import EpochProfile
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import fit_epochs, freedom, loss_bound
from staging.errors import InputError
from tests.hpcbench.study.epoch_derivatives import derivatives

BATCHES = (4, 8, 16, 32, 64, 128, 256)
E_MIN, B_CRIT = 2.0, 60.0


def simulate(
    rng: np.random.Generator, seeds: int = 3, spread: float = 0.1, scatter: float = 0.0, step: float = 0.125,
    cut: float = math.inf, batches: tuple[int, ...] = BATCHES,
) -> list[EpochRun]:  # fmt: skip
    """Runs that are evaluated every ``step`` epochs, until ``cut``; ``scatter`` shifts all the runs of a batch."""
    found = []
    for batch in batches:
        mean = E_MIN * (1 + batch / B_CRIT) * rng.normal(1, scatter)
        for epochs in mean * rng.normal(1, spread, seeds):
            up_to = math.ceil(epochs / step) * step
            found.append(EpochRun(batch, cut, math.inf) if up_to > cut else EpochRun(batch, up_to - step, up_to))
    return found


def exact(batch_sizes: list[float], epochs: list[float]) -> list[EpochRun]:
    """Runs whose epochs are known to the billionth."""
    return [EpochRun(size, each * (1 - 1e-9), each) for size, each in zip(batch_sizes, epochs, strict=True)]


def test_exact_epochs_give_exact_numbers() -> None:
    fit = fit_epochs(exact([32, 64, 256, 256], [12 * (1 + size / 96) for size in (32, 64, 256, 256)]))
    assert fit.e_min == pytest.approx(12, rel=1e-5)
    assert fit.b_crit == pytest.approx(96, rel=1e-5)
    assert fit.predict([96]) == pytest.approx([24], rel=1e-5)
    assert (fit.n, fit.batches, fit.scatter, fit.scatter_p) == (4, 3, 0, 1)
    assert fit.note == "3 batch sizes: intervals need 6"
    assert all(map(math.isnan, (*fit.e_min_interval, *fit.b_crit_interval, *fit.band([8])[0])))


@pytest.mark.parametrize(
    "ends", [(-1.0, 2.0), (5.0, 5.0001), (-9.0, -8.0), (30.0, 31.0), (-math.inf, 0.3), (40.0, math.inf)]
)
def test_probabilities_of_intervals_are_exact_in_both_tails(ends: tuple[float, float]) -> None:
    found = float(log_interval(np.array([ends[0]]), np.array([ends[1]]))[0])
    mirrored = float(log_interval(np.array([-ends[1]]), np.array([-ends[0]]))[0])
    low, high = max(ends[0], -39), min(ends[1], 45)
    middle = min(max(0.0, low), high)
    total, _ = integrate.quad(lambda z: math.exp(middle**2 / 2 - z * z / 2), low, min(high, max(low, 0) + 9), epsabs=0)
    assert found == pytest.approx(math.log(total) - middle**2 / 2 - math.log(2 * math.pi) / 2, rel=1e-6)
    assert mirrored == pytest.approx(found, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "scatter"), [(0.02, 0.2), (0.2, 0.2), (0.2, 0.03), (0.3, 0.0)])
def test_the_likelihood_is_that_of_an_integral_over_each_batch(spread: float, scatter: float) -> None:
    """By scipy's adaptive integration; the derivatives by differences."""
    runs = simulate(np.random.default_rng(3), 4, 0.2, 0.15, cut=6.0)
    likelihood = EpochLikelihood(runs)
    log_mean = np.log(2.1 * (1 + likelihood.sizes / 55))
    found = derivatives(likelihood, log_mean, math.log(spread), scatter)

    def of_batch(size: float, mean: float) -> float:
        here = [run for run in runs if run.batch_size == size]

        def given(shift: float) -> float:
            place = mean - (spread**2 + scatter**2) / 2 + shift
            ends = [[(math.log(x) - place) / spread for x in (run.above or 1e-300, run.up_to)] for run in here]
            return sum(float(log_interval(np.array([low]), np.array([high]))[0]) for low, high in ends)

        if not scatter:
            return given(0.0)
        shifts = np.linspace(-6 * scatter, 6 * scatter, 4001)
        logs = np.array([given(shift) for shift in shifts]) + stats.norm.logpdf(shifts, 0, scatter)
        return float(logs.max() + math.log(integrate.simpson(np.exp(logs - logs.max()), x=shifts)))

    by_hand = sum(of_batch(float(size), float(mean)) for size, mean in zip(likelihood.sizes, log_mean, strict=True))
    assert found.value == pytest.approx(by_hand, rel=2e-4)

    def difference(which: str) -> float:
        ends = []
        for step in (1e-5, -1e-5):
            mean, log_spread, shift = log_mean, math.log(spread), scatter
            mean = mean + step if which == "mean" else mean
            log_spread += step if which == "spread" else 0
            shift += step if which == "scatter" else 0
            ends.append(derivatives(likelihood, mean, log_spread, shift).value)
        return (ends[0] - ends[1]) / 2e-5

    assert found.log_mean.sum() == pytest.approx(difference("mean"), rel=1e-3, abs=1e-3)
    assert found.log_spread == pytest.approx(difference("spread"), rel=1e-3, abs=1e-3)
    if scatter:
        assert found.scatter == pytest.approx(difference("scatter"), rel=2e-3, abs=2e-3)


def test_the_fit_maximises_the_likelihood_and_its_intervals_are_of_the_profile() -> None:
    """By another optimizer, over E_min and B_crit themselves."""
    runs = simulate(np.random.default_rng(5), 3, 0.15, 0.1, cut=6.0)
    fit, likelihood = fit_epochs(runs), EpochLikelihood(runs)

    def loss(e_min: float, b_crit: float, log_spread: float, scatter: float) -> float:
        if min(e_min, b_crit) <= 0 or scatter < 0:
            return math.inf
        return -derivatives(likelihood, np.log(e_min * (1 + likelihood.sizes / b_crit)), log_spread, scatter).value

    def smallest(fixed: dict[int, float]) -> float:
        start = [fit.e_min, fit.b_crit, math.log(fit.spread), max(fit.scatter, 0.05)]
        free = [place for place in range(4) if place not in fixed]

        def of(values: np.ndarray) -> float:
            numbers = dict(zip(free, values, strict=True)) | fixed
            return loss(*(float(numbers[place]) for place in range(4)))

        options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 5000, "maxfev": 5000}
        found = optimize.minimize(of, [start[place] for place in free], method="Nelder-Mead", options=options)
        return float(found.fun)

    least, best = smallest({}), EpochProfile(runs).best()
    assert -best.value == pytest.approx(least, abs=1e-5)
    bound = loss_bound(freedom(runs, best))
    for end in fit.b_crit_interval:
        assert 2 * (smallest({1: end}) - least) == pytest.approx(bound, rel=0.01)
    for end in fit.e_min_interval:  # to second order in the epochs at the middle batch
        assert 2 * (smallest({0: end}) - least) == pytest.approx(bound, rel=0.1)
    assert fit.e_min_interval[0] < fit.e_min < fit.e_min_interval[1]
    assert fit.b_crit_interval[0] < fit.b_crit < fit.b_crit_interval[1]
    low, high = fit.band([0.0, 64.0])
    assert (low[0], high[0]) == pytest.approx(fit.e_min_interval)
    assert low[1] < float(fit.predict(64)) < high[1]


def test_the_bound_of_the_loss_is_that_of_students_t() -> None:
    """A line through normal observations loses n log(1 + t^2 / f) at t standard errors, f being n - 2."""
    for degrees in (5, 19, 68):
        t = stats.t.ppf(0.975, degrees)
        assert loss_bound(degrees) == pytest.approx((degrees + 2) * math.log(1 + t**2 / degrees))
    assert loss_bound(1e7) == pytest.approx(stats.chi2.ppf(0.95, 1), rel=1e-5)


@pytest.mark.slow
def test_runs_that_missed_the_target_move_nothing() -> None:
    """Without them B_crit of the same runs comes out as 84 and more, since only the quick ones reach it."""
    rng = np.random.default_rng(6)
    fits, without = [], []
    for _ in range(9):
        runs = simulate(rng, 5, 0.2, cut=6.0)
        fits.append(fit_epochs(runs))
        without.append(fit_epochs([run for run in runs if run.reached]))
    assert 54 < np.median([fit.b_crit for fit in fits]) < 66
    assert np.median([fit.b_crit for fit in without]) > 66
    assert all(
        "did not reach the target, and are treated as needing more epochs than they were allowed" in fit.note
        for fit in fits
    )


def test_evaluations_after_whole_epochs_move_nothing() -> None:
    runs = simulate(np.random.default_rng(8), 300, 0.1, step=1.0)
    fit = fit_epochs(runs)
    assert fit.e_min == pytest.approx(E_MIN, rel=0.02)
    assert fit.b_crit == pytest.approx(B_CRIT, rel=0.04)
    assert fit.spread == pytest.approx(0.1, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"spread": 0.2, "cut": 6.0}, {"spread": 0.05, "scatter": 0.15},
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (
                {"spread": 0.2}, {"spread": 0.2, "step": 1.0},
                {"spread": 0.05, "scatter": 0.15, "cut": 4.5, "seeds": 10, "batches": BATCHES[:6]},
            )
        ),
    ],
)  # fmt: skip
def test_intervals_hold_the_truth_and_a_scatter_is_said_where_it_is(
    options: dict[str, Any],
) -> None:
    """200 draws of a true 95 % have a standard deviation of 1.5 %."""
    rng, hits, said = np.random.default_rng(11), np.zeros(2), 0
    for _ in range(200):
        fit = fit_epochs(simulate(rng, **options))
        ends = (fit.e_min_interval, E_MIN), (fit.b_crit_interval, B_CRIT)
        hits += [low <= truth <= high for (low, high), truth in ends]
        said += "beside their seeds" in fit.note
    assert (hits / 200 >= 0.905).all()
    assert said >= 180 if options.get("scatter") else said <= 16


def test_twenty_seeds_do_not_hide_that_the_batches_miss_the_line() -> None:
    rng = np.random.default_rng(5)
    means = {32: 8.0, 64: 18.0, 128: 18.0, 256: 20.0, 512: 23.0, 1024: 40.0}
    runs = [EpochRun(size, each - 0.5, each) for size, mean in means.items() for each in mean * rng.normal(1, 0.04, 20)]
    fit = fit_epochs(runs)
    assert fit.scatter > 0.15
    assert fit.spread == pytest.approx(0.04, rel=0.3)
    assert fit.scatter_p < 1e-10
    assert "% beside their seeds (p below 0.0001)" in fit.note
    assert freedom(runs, EpochProfile(runs).best()) == 4


def test_batches_that_all_runs_missed_tell_nothing_of_the_scatter_between_batches() -> None:
    """With 10 seeds that spread by 5 % and a scatter of 15 %, intervals with their freedom held in 89 % of cases."""
    rng = np.random.default_rng(5)
    means = {32: 8.0, 64: 18.0, 128: 18.0, 256: 20.0}
    runs = [EpochRun(size, each - 0.5, each) for size, mean in means.items() for each in mean * rng.normal(1, 0.04, 20)]
    missed = [EpochRun(size, 21.0, math.inf) for size in (512, 1024) for _ in range(20)]
    assert fit_epochs(runs + missed).scatter > 0.1
    assert freedom(runs + missed, EpochProfile(runs + missed).best()) == 2
    one = [run for run in runs if run.batch_size == 32] + missed
    assert freedom(one, EpochProfile(runs).best()) == 1


@pytest.mark.parametrize(("sizes", "said"), [([8, 8, 32], "2 batch sizes"), ([8, 8, 8], "1 batch size:"), ([], "0")])
def test_fewer_than_three_batches_are_not_fitted(sizes: list[float], said: str) -> None:
    fit = fit_epochs([*exact(sizes, [5.0 + size for size in sizes]), EpochRun(512, 5, math.inf)])
    assert all(map(math.isnan, (fit.e_min, fit.b_crit, *fit.e_min_interval, *fit.b_crit_interval)))
    assert fit.note.startswith(said)
    assert "reached the target at 3" in fit.note


def test_a_run_that_missed_the_target_in_no_epochs_says_nothing() -> None:
    """Such as one that was stopped before its first evaluation; with it, E_min and B_crit came out as 0."""
    runs = simulate(np.random.default_rng(3), 2)
    fit, without = fit_epochs([*runs, EpochRun(32, 0.0, math.inf)]), fit_epochs(runs)
    assert (fit.n, fit.e_min, fit.b_crit, fit.note) == (without.n, without.e_min, without.b_crit, without.note)


def test_where_all_runs_meet_the_first_evaluation_there_is_no_fit() -> None:
    """Nothing tells how few epochs they took: E_min came out as a tenth of those up to that evaluation."""
    runs = [EpochRun(batch, 0.0, 0.125) for batch in BATCHES]
    fit = fit_epochs(runs)
    assert all(map(math.isnan, (fit.e_min, fit.b_crit, *fit.e_min_interval, *fit.b_crit_interval)))
    assert fit.note == "all runs met the target at the first evaluation: no fit; evaluate more often"
    assert fit.delay == 0.0625
    assert math.isfinite(fit_epochs([*runs, EpochRun(512, 0.125, 0.25)]).e_min)


def test_a_fit_with_an_interval_says_at_how_many_batches_runs_reached_the_target() -> None:
    runs = simulate(np.random.default_rng(3), 3, cut=6.0)
    reached = {run.batch_size for run in runs if run.reached}
    few = [run for run in runs if run.batch_size <= 16]
    missed = [EpochRun(size, 4.0, math.inf) for size in (64, 128, 256)]
    said = "runs reached the target at 3 of 6 batch sizes"
    fit = fit_epochs(few + missed)
    assert math.isfinite(fit.b_crit_interval[0])
    assert said in fit.note.split("; ")
    assert len(reached) >= 6
    assert "batch sizes" not in fit_epochs(runs).note, "six and more are enough"
    assert "of 3 batch sizes" not in fit_epochs(few).note


def test_epochs_that_do_not_grow_have_no_critical_batch() -> None:
    rng = np.random.default_rng(7)
    epochs = 20 * rng.normal(1, 0.05, 21) - np.repeat([0, 0, 0, 0, 0, 1, 2], 3)
    fit = fit_epochs(exact(np.repeat(BATCHES, 3).tolist(), epochs.tolist()))
    assert fit.b_crit == math.inf
    assert fit.e_min == pytest.approx(epochs.mean(), rel=1e-3)
    assert fit.e_min_interval[0] < fit.e_min < fit.e_min_interval[1]
    assert fit.b_crit_interval[0] > 256
    assert fit.b_crit_interval[1] == math.inf
    assert "do not grow with the batch: B_crit is unbounded" in fit.note
    assert fit.predict([1, 1000]).tolist() == [fit.e_min] * 2


def test_a_slope_that_may_be_zero_has_no_upper_bound() -> None:
    rng = np.random.default_rng(2)
    fit = fit_epochs(
        exact(
            np.repeat(BATCHES, 2).tolist(), (20 * (1 + np.repeat(BATCHES, 2) / 2000) * rng.normal(1, 0.06, 14)).tolist()
        )
    )
    assert 256 < fit.b_crit_interval[0] < fit.b_crit < fit.b_crit_interval[1] == math.inf
    assert "the slope may be zero: B_crit has no upper bound" in fit.note


def test_epochs_that_grow_faster_than_the_batch_leave_nothing_at_small_ones() -> None:
    fit = fit_epochs(exact([8, 16, 32, 64, 128, 512], [2, 4.2, 9, 19, 40, 200]))
    assert (fit.e_min, fit.b_crit, fit.b_crit_interval[0], fit.e_min_interval[0]) == (0, 0, 0, 0)
    assert fit.b_crit_interval[1] < 512
    assert "E_min and B_crit are not above 0" in fit.note
    assert fit.predict([100])[0] > 0


def test_an_e_min_that_may_be_zero_has_no_lower_bound() -> None:
    fit = fit_epochs(exact([64, 96, 128, 192, 256, 512], [4.5, 4.2, 6.5, 11, 15, 26]))
    assert fit.e_min_interval[0] == fit.b_crit_interval[0] == 0
    assert 0 < fit.b_crit < fit.b_crit_interval[1] < 512
    assert fit.note == "E_min may be zero: B_crit has no lower bound"


def test_bad_observations_are_refused() -> None:
    with pytest.raises(InputError, match=r"a batch size of 0 cannot be fitted; it must be above 0"):
        fit_epochs(exact([8, 0, 32], [1, 2, 3]))
    with pytest.raises(InputError, match=r"epochs above 3 and up to 2 cannot be fitted"):
        fit_epochs([EpochRun(8, 3, 2)])
    with pytest.raises(InputError, match=r"epochs above nan and up to inf cannot be fitted"):
        fit_epochs([EpochRun(8, math.nan, math.inf)])
