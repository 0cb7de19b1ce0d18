"""A factor of the time to solution as a model with priors, fitted to published entries of several sites.

Residuals are in logarithms. Each site counts equally, however many entries it has. The spread is that of the errors
for sites that were left out of the fit, as a prediction for a new machine makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Floats = NDArray[np.float64]
Parameters = Mapping[str, Floats]
"""By name: a number, or one for each application in the last dimension; draws add a first dimension."""
Model = Callable[[Parameters, NDArray[np.intp]], Floats]
"""Logarithms of the predictions for the cases with these numbers."""

SCALE = 0.15
"""An ordinary error of a logarithm; larger ones count less than their square."""
FEWEST_SITES = 2


@dataclass(frozen=True)
class Prior:
    """What is believed about a parameter before any entry is seen."""

    name: str
    centre: float
    sd: float
    """Standard deviation; of the logarithm where ``log``."""
    log: bool = True
    per_application: bool = False
    """Whether every application has its own."""

    def value(self, z: Floats) -> Floats:
        """The parameter that lies ``z`` standard deviations from the centre."""
        return self.centre * np.exp(self.sd * z) if self.log else self.centre + self.sd * z


@dataclass(frozen=True)
class Factor:
    """A fitted factor."""

    priors: tuple[Prior, ...]
    applications: int
    z: Floats
    """The parameters in standard deviations of their priors."""
    covariance: Floats
    """Covariance of ``z``."""
    spread: float
    """Standard deviation of the logarithm for a site that was not in the fit."""
    sites: int

    def parameters(self) -> Parameters:
        """The most probable parameters."""
        return unpack(self.priors, self.z, self.applications)

    def draw(self, rng: np.random.Generator, count: int) -> Parameters:
        """``count`` draws of the parameters."""
        return unpack(self.priors, rng.multivariate_normal(self.z, self.covariance, count), self.applications)

    def noise(self, rng: np.random.Generator, count: int) -> Floats:
        """``count`` draws of the logarithm of a new site's deviation from the model."""
        return self.spread * rng.standard_normal(count)


def unpack(priors: Sequence[Prior], z: Floats, applications: int) -> dict[str, Floats]:
    """Parameters by name from the last dimension of ``z``."""
    parameters, at = {}, 0
    for prior in priors:
        width = applications if prior.per_application else 1
        values = prior.value(z[..., at : at + width])
        parameters[prior.name] = values if prior.per_application else values[..., 0]
        at += width
    return parameters


def fit_factor(
    priors: Sequence[Prior], applications: int, model: Model, observed: Floats, sites: Sequence[str]
) -> Factor:
    """Fit ``model`` to the logarithms ``observed`` of cases at ``sites``; the spread is of sites left out in turn."""
    priors = tuple(priors)
    names = np.asarray(sites)
    every = np.arange(len(observed))
    z, covariance = most_probable(priors, applications, model, observed, names, every)
    distinct = sorted(set(sites))
    squares = []
    for site in distinct if len(distinct) >= FEWEST_SITES else []:
        rest, out = every[names != site], every[names == site]
        rest_z, _ = most_probable(priors, applications, model, observed, names, rest)
        errors = observed[out] - model(unpack(priors, rest_z, applications), out)
        squares.append(float(np.mean(errors**2)))
    spread = float(np.sqrt(np.mean(squares))) if squares else float("nan")
    return Factor(priors, applications, z, covariance, spread, len(distinct))


def most_probable(
    priors: Sequence[Prior], applications: int, model: Model, observed: Floats, sites: NDArray[np.str_],
    cases: NDArray[np.intp],
) -> tuple[Floats, Floats]:  # fmt: skip
    """The most probable parameters in standard deviations of their priors, and their covariance."""
    counts = {site: int((sites[cases] == site).sum()) for site in set(sites[cases].tolist())}
    weights = np.array([1 / np.sqrt(counts[site]) for site in sites[cases].tolist()])
    width = sum(applications if prior.per_application else 1 for prior in priors)

    def residuals(z: Floats) -> Floats:
        errors = (model(unpack(priors, z, applications), cases) - observed[cases]) * weights / SCALE
        return np.concatenate([errors, z])

    solution = least_squares(residuals, np.zeros(width), loss="soft_l1")
    return solution.x, np.linalg.inv(solution.jac.T @ solution.jac)
