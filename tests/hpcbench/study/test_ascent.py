"""The search for maxima from many starts at once: within bounds, past saddles, and with few steps."""

from __future__ import annotations

import numpy as np
import pytest

from hpcbench.study.ascent import Floats, Values, ascend

FREE = np.full((1, 2), np.inf)


def valley(points: Floats) -> Values:
    """Minus Rosenbrock's function, which has its maximum of 0 at (1, 1)."""
    x, y = points.T
    gradient = -np.stack([2 * (x - 1) - 400 * x * (y - x**2), 200 * (y - x**2)], axis=1)
    hessian = -np.stack([2 - 400 * (y - 3 * x**2), -400 * x, -400 * x, np.full_like(x, 200.0)], axis=1)
    return Values(-((1 - x) ** 2) - 100 * (y - x**2) ** 2, gradient, hessian.reshape(-1, 2, 2))


def hills(points: Floats) -> Values:
    """Maxima of 1 at (-1, 0) and (1, 0), and a saddle between them."""
    x, y = points.T
    gradient = np.stack([4 * x * (1 - x**2), -2 * y], axis=1)
    hessian = np.zeros((len(x), 2, 2))
    hessian[:, 0, 0], hessian[:, 1, 1] = 4 - 12 * x**2, -2
    return Values(2 * x**2 - x**4 - y**2, gradient, hessian)


def test_every_start_reaches_the_maximum_of_a_curved_valley() -> None:
    starts = np.array([[-1.2, 1.0], [2.0, -3.0], [0.0, 0.0], [1.0, 1.0]])
    bounds = np.full(starts.shape, np.inf)
    points, values = ascend(valley, starts, -bounds, bounds)
    assert points == pytest.approx(np.ones_like(points), abs=1e-3)
    assert values.value == pytest.approx(np.zeros(4), abs=1e-6)


def test_a_search_leaves_a_saddle_and_stays_in_its_bounds() -> None:
    starts = np.array([[0.01, 1.0], [-0.01, 1.0], [0.2, 1.0]])
    low, high = np.full((3, 2), -np.inf), np.full((3, 2), np.inf)
    low[2], high[2] = (-0.5, 0.25), (0.5, 1.0)
    points, values = ascend(hills, starts, low, high)
    assert points == pytest.approx(np.array([[1, 0], [-1, 0], [0.5, 0.25]]), abs=1e-3)
    assert values.value[:2] == pytest.approx([1, 1])


def test_an_argument_with_equal_bounds_is_fixed() -> None:
    start = np.array([[0.3, 2.0]])
    points, _ = ascend(hills, start, np.array([[0.3, -5.0]]), np.array([[0.3, 5.0]]))
    assert points == pytest.approx(np.array([[0.3, 0.0]]), abs=1e-4)


def test_a_quadratic_takes_one_step() -> None:
    asked = []

    def bowl(points: Floats) -> Values:
        asked.append(len(points))
        return Values(-(points**2).sum(1), -2 * points, np.tile(-2 * np.eye(2), (len(points), 1, 1)))

    points, values = ascend(bowl, np.array([[0.3, 0.4]]), -FREE, FREE)
    assert (points.tolist(), values.value.tolist()) == ([[0, 0]], [0])
    assert asked == [1, 1]
