"""The fit of a factor: a law is found again, and the spread is that of sites which were left out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcbench.prediction.factor import Factor, Floats, Parameters, Prior, fit_factor

PRIORS = (Prior("level", 1.0, 3.0, per_application=True), Prior("power", 0.0, 3.0, log=False))


def fitted(spread: float, sites: int, seed: int = 0) -> Factor:
    """A factor of two applications with levels 2 and 5 and power 0.5, whose sites scatter by ``spread``."""
    rng = np.random.default_rng(seed)
    application = np.tile([0, 1, 0, 1], sites)
    x = rng.uniform(1, 100, 4 * sites)
    sites_of = np.repeat(np.arange(sites), 4)
    own = rng.standard_normal(sites) * spread
    observed = np.log(np.array([2.0, 5.0])[application]) + 0.5 * np.log(x) + own[sites_of]

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        return np.asarray(np.log(parameters["level"][application[which]]) + parameters["power"] * np.log(x[which]))

    return fit_factor(PRIORS, 2, model, observed, [str(site) for site in sites_of])


def test_a_law_is_found_again() -> None:
    found = fitted(0.0, 5)
    parameters = found.parameters()
    assert parameters["level"] == pytest.approx([2, 5], rel=0.02)
    assert parameters["power"] == pytest.approx(0.5, abs=0.01)
    assert found.spread < 0.01


def test_the_spread_is_that_of_sites() -> None:
    found = [fitted(0.2, 8, seed).spread for seed in range(6)]
    assert np.mean(found) == pytest.approx(0.2, rel=0.25)


def test_draws_are_about_the_most_probable_parameters() -> None:
    found = fitted(0.1, 6)
    drawn = found.draw(np.random.default_rng(0), 2000)
    assert drawn["level"].shape == (2000, 2)
    assert np.median(drawn["level"], axis=0) == pytest.approx(found.parameters()["level"], rel=0.05)
    assert np.std(found.noise(np.random.default_rng(0), 4000)) == pytest.approx(found.spread, rel=0.05)
