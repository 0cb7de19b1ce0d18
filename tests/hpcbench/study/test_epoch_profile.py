"""The profile likelihood of the fit: its second derivatives, scatter that is small, seeds that tie, and its cost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpcbench.study.epoch_likelihood import BatchTerms, EpochLikelihood, Floats
from hpcbench.study.epoch_profile import EpochProfile
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import fit_epochs
from tests.hpcbench.study.epoch_derivatives import derivatives

BATCHES = (4, 8, 16, 32, 64, 128, 256)


def simulate(seed: int, spread: float, *, seeds: int = 3, step: float = 0.125, scatter: float = 0.0) -> list[EpochRun]:
    """Runs with E_min 2 and B_crit 60, evaluated every ``step`` epochs."""
    rng, runs = np.random.default_rng(seed), []
    for batch in BATCHES:
        mean = 2 * (1 + batch / 60) * math.exp(rng.normal(0, scatter))
        for epochs in mean * rng.normal(1, spread, seeds):
            up_to = math.ceil(epochs / step) * step
            runs.append(EpochRun(batch, up_to - step, up_to))
    return runs


@pytest.mark.parametrize(
    ("spread", "scatter"), [(0.02, 0.2), (0.2, 0.15), (0.2, 0.03), (0.15, 0.0)], ids=lambda value: f"{value:g}"
)
def test_second_derivatives_are_those_of_the_gradient(spread: float, scatter: float) -> None:
    likelihood = EpochLikelihood(simulate(3, 0.1, seeds=4, scatter=0.1))
    places = np.log(2.1 * (1 + likelihood.sizes / 55))

    def terms(by: Floats) -> BatchTerms:
        return likelihood.terms(
            (places + by[0])[None], np.array([math.log(spread) + by[1]]), np.array([scatter + by[2]])
        )

    steps = 1e-4 * np.eye(3)[: 3 if scatter else 2]
    differences = [(terms(step).gradient - terms(-step).gradient)[0] / 2e-4 for step in steps]
    found = terms(np.zeros(3)).hessian[0, :, : len(steps)]
    assert found == pytest.approx(np.stack(differences, axis=1), abs=2e-3 * np.abs(found).max())


def test_lines_are_the_same_one_by_one_and_together() -> None:
    likelihood = EpochLikelihood(simulate(3, 0.1))
    places = np.log(2 * (1 + likelihood.sizes / np.array([[40.0], [60.0], [1e3]])))
    spreads, scatters = np.log([0.05, 0.1, 0.3]), np.array([0.2, 0.01, 0.1])
    together = likelihood.terms(places, spreads, scatters)
    for number in range(3):
        alone = likelihood.terms(places[[number]], spreads[[number]], scatters[[number]])
        for one, all_of_them in zip(alone, together, strict=True):
            assert all_of_them[number] == pytest.approx(one[0], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_no_scatter_is_more_probable_than_that_of_the_best_line(seed: int) -> None:
    """The likelihood is level where the scatter is 0, so a search can end there with a larger one more probable."""
    profile = EpochProfile(simulate(seed, 0.05))
    best = profile.best()
    log_mean = best.log_middle + np.log(best.share + (1 - best.share) * profile.likelihood.sizes / profile.middle)
    for scatter in (0.003, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1):
        for change in (-0.05, 0.0, 0.05):
            there = derivatives(profile.likelihood, log_mean, best.log_spread + change, scatter)
            assert there.value <= best.value + 1e-6


def test_derivatives_are_right_where_seeds_tie() -> None:
    """The integrand is nearly a box then: at fixed nodes, its change is all in edges that lie between nodes."""
    ends = (2, 2, 3, 3, 4, 7, 11)
    likelihood = EpochLikelihood([EpochRun(size, end - 1, end) for size, end in zip(BATCHES, ends, strict=True)] * 4)
    places, log_spread = np.log(1.4 * (1 + likelihood.sizes / 50)), np.array([math.log(0.004)])

    def terms(by_place: float, by_scatter: float) -> BatchTerms:
        return likelihood.terms((places + by_place)[None], log_spread, np.array([0.4 + by_scatter]))

    here = terms(0, 0)
    for place, (up, down) in ((0, (terms(0.001, 0), terms(-0.001, 0))), (2, (terms(0, 0.001), terms(0, -0.001)))):
        assert here.gradient[0, :, place] == pytest.approx((up.value - down.value)[0] / 0.002, abs=0.1)
        slope = (up.gradient - down.gradient)[0, :, place] / 0.002
        assert here.hessian[0, :, place, place] == pytest.approx(slope, rel=0.05, abs=0.3)


def test_a_fit_asks_for_few_likelihoods(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another they would take a second for each series of a page."""
    asked: list[int] = []
    terms = EpochLikelihood.terms

    def counted(self: EpochLikelihood, places: Floats, log_spread: Floats, scatter: Floats) -> BatchTerms:
        asked.append(len(places))
        return terms(self, places, log_spread, scatter)

    monkeypatch.setattr(EpochLikelihood, "terms", counted)
    fit = fit_epochs(simulate(5, 0.1, scatter=0.1))
    assert math.isfinite(fit.b_crit_interval[0])
    assert len(asked) < 90
    assert max(asked) == 21
