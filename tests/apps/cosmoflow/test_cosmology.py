"""Linear theory against an independent implementation, direct integration and analytic limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from apps.cosmoflow.cosmology import (
    PLANCK_2015,
    Cosmology,
    label_from_parameters,
    parameters_from_label,
    top_hat,
    transfer,
    variance,
)

PLANCK = Cosmology(*PLANCK_2015)
LOW = Cosmology(0.22, 0.9, 1.2, 50.0)
HIGH = Cosmology(0.40, 0.6, 0.7, 88.0)

K = np.array([1e-3, 1e-2, 0.05, 0.1, 0.3, 1.0, 5.0])
# colossus 1.4.0, model "eisenstein98", Omega_b 0.0486, T_CMB 2.7255: transfer function and power at z = 0
COLOSSUS = {
    PLANCK: (
        [
            9.92208448e-01,
            7.79562543e-01,
            2.70859180e-01,
            1.30896010e-01,
            3.03429465e-02,
            4.67956492e-03,
            3.05638711e-04,
        ],
        [3.79875066e03, 2.17189101e04, 1.24255702e04, 5.67135801e03, 8.81478924e02, 6.71345155e01, 1.35722022e00],
    ),
    LOW: (
        [
            9.76534614e-01,
            6.17352437e-01,
            1.27846023e-01,
            5.32702761e-02,
            1.07280298e-02,
            1.51010020e-03,
            9.14054410e-05,
        ],
        [8.93066823e03, 5.65687796e04, 1.67358234e04, 6.67539170e03, 1.01185602e03, 8.50198157e01, 2.14890655e00],
    ),
    HIGH: (
        [
            9.96983778e-01,
            8.75095412e-01,
            4.21005668e-01,
            2.40541171e-01,
            6.56161128e-02,
            1.11620854e-02,
            7.84859200e-04,
        ],
        [2.11131973e03, 8.15246895e03, 5.82147030e03, 3.08714094e03, 4.95667681e02, 3.33171989e01, 5.08211026e-01],
    ),
}
everywhere = pytest.mark.parametrize("universe", list(COLOSSUS), ids=["planck", "low", "high"])


@everywhere
def test_transfer_function_and_power_agree_with_an_independent_implementation(universe: Cosmology) -> None:
    transfer_function, power = COLOSSUS[universe]
    np.testing.assert_allclose(transfer(K, universe), transfer_function, rtol=1e-8)
    np.testing.assert_allclose(universe.power(K), power, rtol=1e-4)


@everywhere
def test_transfer_function_is_one_on_the_largest_scales(universe: Cosmology) -> None:
    assert transfer(np.array([1e-6]), universe)[0] == pytest.approx(1.0, abs=1e-4)


def test_baryon_oscillations_ride_on_the_smooth_form() -> None:
    """The no-wiggle fit (Eisenstein & Hu 1998, section 4.2) is the same curve without the oscillations."""
    k = np.geomspace(1e-3, 1.0, 400)
    ratio = transfer(k, PLANCK) / no_wiggle(k, PLANCK)
    assert abs(ratio.mean() - 1) < 0.01
    assert 0.02 < np.ptp(ratio) / 2 < 0.06
    wiggles = ratio[(k > 0.03) & (k < 0.3)] - 1
    crossings = int((np.diff(np.sign(wiggles - wiggles.mean())) != 0).sum())
    assert 4 <= crossings <= 12


def no_wiggle(k: np.ndarray, universe: Cosmology) -> np.ndarray:
    matter, baryons = universe.omega_m * universe.h**2, 0.0486 * universe.h**2
    fraction = baryons / matter
    horizon = 44.5 * np.log(9.83 / matter) / np.sqrt(1 + 10 * baryons**0.75)
    alpha = 1 - 0.328 * np.log(431 * matter) * fraction + 0.38 * np.log(22.3 * matter) * fraction**2
    shape = universe.omega_m * universe.h * (alpha + (1 - alpha) / (1 + (0.43 * k * universe.h * horizon) ** 4))
    q = k * (2.7255 / 2.7) ** 2 / shape
    logarithm = np.log(2 * np.e + 1.8 * q)
    return logarithm / (logarithm + (14.2 + 731 / (1 + 62.5 * q)) * q**2)


@everywhere
def test_power_has_the_given_sigma_8(universe: Cosmology) -> None:
    def integrand(log_k: float) -> float:
        k = np.exp(log_k)
        x = 8 * k
        window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
        return float(k**3 * universe.power(np.array([k]))[0] * window**2 / (2 * np.pi**2))

    total = sum(quad(integrand, a, b, limit=500)[0] for a, b in ((-8, -2), (-2, 0), (0, 3)))
    assert np.sqrt(total) == pytest.approx(universe.sigma_8, rel=1e-4)


def test_power_law_variance_is_analytic() -> None:
    """For P = k^-2 the integral of the squared ball window is known: sigma^2 = 3 / (10 pi R)."""
    k = np.geomspace(1e-6, 1e4, 400_000)
    assert variance(k, k**-2.0, radius=8.0) == pytest.approx(3 / (10 * np.pi * 8.0), rel=1e-4)


def test_power_vanishes_at_zero_and_follows_n_s_on_large_scales() -> None:
    assert PLANCK.power(np.array([0.0]))[0] == 0
    small = PLANCK.power(np.array([1e-6, 2e-6]))
    assert np.log2(small[1] / small[0]) == pytest.approx(PLANCK.n_s, abs=1e-3)


def test_window_of_a_ball_is_smooth_where_the_series_takes_over() -> None:
    below, above = top_hat(np.array([0.999e-3, 1.001e-3]))
    assert below == pytest.approx(above, abs=1e-8)
    assert top_hat(np.array([0.0]))[0] == 1


@everywhere
@pytest.mark.parametrize("redshift", [0.0, 0.5, 1.5, 3.0, 9.0])
def test_growth_is_the_integral_of_heath(universe: Cosmology, redshift: float) -> None:
    def hubble(a: float) -> float:
        return float(np.sqrt(universe.omega_m / a**3 + 1 - universe.omega_m))

    def growth(a: float) -> float:
        return hubble(a) * float(quad(lambda x: (x * hubble(x)) ** -3, 0, a)[0])

    assert universe.growth_first(redshift) == pytest.approx(growth(1 / (1 + redshift)) / growth(1.0), rel=1e-6)


@pytest.mark.parametrize("redshift", [0.0, 1.0, 3.0])
def test_growth_in_an_einstein_de_sitter_universe(redshift: float) -> None:
    flat = Cosmology(1.0, 0.8, 1.0, 70.0)
    assert flat.growth_first(redshift) == pytest.approx(1 / (1 + redshift), rel=1e-12)
    assert flat.growth_second(redshift) == pytest.approx(-3 / 7 / (1 + redshift) ** 2, rel=1e-12)


@everywhere
def test_second_order_growth_solves_its_equation(universe: Cosmology) -> None:
    """D2'' + (2 + H'/H) D2' = 1.5 Omega_m(a) (D2 - D1^2) in ln a, with the sign that makes D2 negative."""

    def slope(log_a: float, state: np.ndarray) -> list[float]:
        first, first_rate, second, second_rate = state
        matter = universe.omega_m_at(np.exp(-log_a) - 1)
        friction = 2 - 1.5 * matter
        return [
            first_rate,
            1.5 * matter * first - friction * first_rate,
            second_rate,
            1.5 * matter * (second - first**2) - friction * second_rate,
        ]

    a = 1e-3
    start = [a, a, -3 / 7 * a**2, -6 / 7 * a**2]
    times = np.log(1 / (1 + np.array([3.0, 1.5, 0.5, 0.0])))
    solved = solve_ivp(slope, (np.log(a), 0.0), start, t_eval=times, rtol=1e-9, atol=1e-14).y
    expected = solved[2] / solved[0, -1] ** 2
    found = [universe.growth_second(z) for z in (3.0, 1.5, 0.5, 0.0)]
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_labels_scale_the_range_of_30_percent_and_invert() -> None:
    np.testing.assert_allclose(parameters_from_label(np.zeros(4)), [0.3089, 0.8159, 0.9667, 67.74])
    np.testing.assert_allclose(parameters_from_label(np.ones(4)) / PLANCK_2015, 1.3)
    np.testing.assert_allclose(parameters_from_label(-np.ones(4)) / PLANCK_2015, 0.7)
    labels = np.random.default_rng(0).uniform(-1, 1, (100, 4))
    np.testing.assert_allclose(label_from_parameters(parameters_from_label(labels)), labels, atol=1e-12)
    assert Cosmology.from_label(np.zeros(4)) == PLANCK
