"""The fit where seeds meet the target at the same evaluations, so that their spread cannot be seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from hpcbench.study.epoch_likelihood import EpochLikelihood
from hpcbench.study.epoch_profile import EpochProfile
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import fit_epochs
from tests.hpcbench.study.epoch_derivatives import derivatives

SIZES = (4, 8, 16, 32, 64, 128)


def tied(evaluations: tuple[int, ...], seeds: int = 3) -> list[EpochRun]:
    """All seeds of a batch met the target at the evaluation after so many epochs."""
    return [EpochRun(size, end - 1, end) for size, end in zip(SIZES, evaluations, strict=True) for _ in range(seeds)]


@pytest.mark.parametrize("evaluations", [(2,) * 6, (2, 2, 3, 4, 6, 10)])
@pytest.mark.parametrize("scatter", [0.1, 0.3, 1.0, 2.4])
def test_the_likelihood_of_a_box_is_its_integral(evaluations: tuple[int, ...], scatter: float) -> None:
    """By a sum over a fine grid: nine nodes of Gauss and Hermite give -5.4 where the integral is -10.0."""
    runs, spread = tied(evaluations), 0.01
    likelihood = EpochLikelihood(runs)
    log_mean = np.log(1.5 * (1 + likelihood.sizes / 60))
    by_hand, shift = 0.0, np.linspace(-9, 9, 400_001)
    for size, mean in zip(likelihood.sizes, log_mean, strict=True):
        place = mean - (spread**2 + scatter**2) / 2 + shift
        logs = -((shift / scatter) ** 2) / 2 - math.log(scatter * math.sqrt(2 * math.pi))
        for run in (run for run in runs if run.batch_size == size):
            inside = ndtr((math.log(run.up_to) - place) / spread) - ndtr((math.log(run.above) - place) / spread)
            logs = logs + np.log(np.maximum(inside, 1e-300))
        by_hand += math.log(np.exp(logs).sum() * (shift[1] - shift[0]))
    assert derivatives(likelihood, log_mean, math.log(spread), scatter).value == pytest.approx(by_hand, abs=0.01)


@given(st.lists(st.integers(1, 9), min_size=6, max_size=6).map(sorted), st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_no_line_without_scatter_is_more_probable_than_the_best(evaluations: list[int], seeds: int) -> None:
    runs = tied(tuple(1 + end for end in evaluations), seeds)
    fit, best = fit_epochs(runs), EpochProfile(runs).best()
    assert best.value >= EpochProfile(runs, with_scatter=False).best().value - 1e-6
    assert 0 <= fit.scatter_p <= 1
    assert fit.e_min <= max(run.up_to for run in runs)


def test_where_all_seeds_tie_no_interval_is_given_and_the_note_says_what_to_do() -> None:
    fit = fit_epochs(tied((3, 3, 3, 4, 5, 7)))
    assert (fit.e_min, fit.b_crit) == (pytest.approx(2.0, rel=0.15), pytest.approx(55, rel=0.25))
    assert all(map(math.isnan, (*fit.e_min_interval, *fit.b_crit_interval)))
    assert fit.note == ("evaluations are too far apart to tell how far seeds spread: no intervals; evaluate more often")
    some = fit_epochs([*tied((3, 3, 3, 4, 5, 7)), *(EpochRun(size, 3, 4) for size in SIZES[:3])])
    assert all(map(math.isfinite, some.b_crit_interval))
