"""Finds the maxima of smooth functions of a few arguments from many starts at once, by Newton's method within bounds.

A step goes to the maximum of the quadratic with the function's derivatives, with the sign of every curvature that is
not negative changed, so that no step leads to a saddle. A step that does not improve the value is not taken, and the
next one is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST_STEPS = 60
FIRST_RADIUS = 1.0
SHORTEST_STEP = 1e-7
LEAST_GAIN = 1e-6
"""A search ends where the next step promises less than this, after that step."""
NOISE = 1e-9
"""A value smaller by this part is not worse: it comes from an integral."""
LEAST_CURVATURE = 1e-8


class Values(NamedTuple):
    """A function at several points: arrays of (points), (points, arguments) and (points, arguments, arguments)."""

    value: Floats
    gradient: Floats
    hessian: Floats

    def at(self, places: npt.NDArray[np.intp]) -> Values:
        """The same at some of the points."""
        return Values(self.value[places], self.gradient[places], self.hessian[places])


def ascend(function: Callable[[Floats], Values], start: Floats, low: Floats, high: Floats) -> tuple[Floats, Values]:
    """The points that are reached from the rows of ``start``, and the function there up to the last, tiny step.

    ``function`` takes points of (points, arguments). ``low`` and ``high`` have the shape of ``start``; where they are
    equal, an argument is fixed.
    """
    points = np.clip(start, low, high)
    here = function(points)
    radius = np.full(len(points), FIRST_RADIUS)
    active = np.arange(len(points))
    for _ in range(MOST_STEPS):
        steps, gains = newton_steps(here.at(active), points[active], low[active], high[active])
        lengths = np.sqrt((steps**2).sum(1))
        steps *= np.minimum(1, radius[active] / np.maximum(lengths, SHORTEST_STEP))[:, None]
        trial = np.clip(points[active] + steps, low[active], high[active])
        last = (gains < LEAST_GAIN) & (lengths <= radius[active])
        points[active[last]] = trial[last]
        here.value[active[last]] += gains[last]
        goes_on = ~last & (radius[active] > SHORTEST_STEP)
        active, trial, lengths = active[goes_on], trial[goes_on], np.minimum(lengths, radius[active])[goes_on]
        if not len(active):
            break
        there = function(trial)
        before = here.value[active]
        better = there.value >= before - NOISE * (1 + np.abs(before))
        radius[active] = np.where(better, np.maximum(radius[active], 2 * lengths), lengths / 4)
        taken = active[better]
        points[taken] = trial[better]
        for all_points, some in zip(here, there.at(np.flatnonzero(better)), strict=True):
            all_points[taken] = some
    return points, here


def newton_steps(values: Values, points: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The step from each point, and the gain that it promises; arguments that would leave their bounds are fixed."""
    gradient = values.gradient
    fixed = ((points <= low) & (gradient <= 0)) | ((points >= high) & (gradient >= 0))
    gradient = np.where(fixed, 0, gradient)
    hessian = np.where(fixed[:, :, None] | fixed[:, None, :], 0, values.hessian)
    curvatures, axes = np.linalg.eigh(np.where(np.isfinite(hessian), hessian, 0))
    along = np.einsum("pij,pi->pj", axes, np.where(np.isfinite(gradient), gradient, 0))
    by_axis = along / np.maximum(np.abs(curvatures), LEAST_CURVATURE)
    return np.einsum("pij,pj->pi", axes, by_axis), (along * by_axis).sum(1) / 2
