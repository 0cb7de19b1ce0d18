"""Linear theory of a flat Lambda-CDM universe: transfer function, growth, and the power spectrum (numpy, float64).

Wave numbers are in h/Mpc, lengths in Mpc/h, spectra in (Mpc/h)^3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PLANCK_2015 = (0.3089, 0.8159, 0.9667, 67.74)
"""Omega_m, sigma_8, n_s and H_0 (km/s/Mpc) of Planck 2015 (arXiv:1502.01589, table 4, last column)."""
SPREAD = 0.3
"""Parameters are drawn within this fraction of the Planck values."""
OMEGA_B = 0.0486
"""Baryon density, the same in every universe (Planck 2015)."""
T_CMB = 2.7255
"""Temperature of the microwave background in kelvin (Fixsen 2009)."""


def parameters_from_label(label: NDArray[np.floating]) -> Array:
    """Return Omega_m, sigma_8, n_s, H_0 (km/s/Mpc) for labels in [-1, 1] of any shape (..., 4)."""
    return np.asarray(np.asarray(PLANCK_2015) * (1 + SPREAD * np.asarray(label, dtype=np.float64)))


def label_from_parameters(parameters: NDArray[np.floating]) -> Array:
    """Invert ``parameters_from_label``: (..., 4) scaled so that the range of the draw is [-1, 1]."""
    return np.asarray((np.asarray(parameters, dtype=np.float64) / np.asarray(PLANCK_2015) - 1) / SPREAD)


@dataclass(frozen=True)
class Cosmology:
    """A flat universe of matter and a cosmological constant."""

    omega_m: float
    sigma_8: float
    n_s: float
    h_0: float
    """Hubble constant in km/s/Mpc."""

    @classmethod
    def from_label(cls, label: NDArray[np.floating]) -> Cosmology:
        """The universe whose label, (4,) in [-1, 1], is ``label``."""
        omega_m, sigma_8, n_s, h_0 = parameters_from_label(label).tolist()
        return cls(omega_m, sigma_8, n_s, h_0)

    @property
    def h(self) -> float:
        """Hubble constant in units of 100 km/s/Mpc."""
        return self.h_0 / 100

    def omega_m_at(self, redshift: float) -> float:
        """Matter density over critical density at ``redshift``."""
        matter: float = self.omega_m * (1 + redshift) ** 3
        return matter / (matter + 1 - self.omega_m)

    def growth_first(self, redshift: float) -> float:
        """Linear growth factor D1, 1 today (closed form for matter and Lambda: Heath 1977 as a 2F1)."""
        from scipy.special import hyp2f1  # only simulation needs scipy: training only reads labels

        def unnormalized(a: float) -> float:
            return float(a * hyp2f1(1 / 3, 1, 11 / 6, -(a**3) * (1 - self.omega_m) / self.omega_m))

        return unnormalized(1 / (1 + redshift)) / unnormalized(1.0)

    def growth_second(self, redshift: float) -> float:
        """Second-order growth factor D2, negative (fit of Bouchet et al. 1995, eq. 41, good to 1e-3)."""
        return float(-3 / 7 * self.growth_first(redshift) ** 2 * self.omega_m_at(redshift) ** (-1 / 143))

    def power(self, k: NDArray[np.floating]) -> Array:
        """Linear matter power spectrum today, (Mpc/h)^3, at wave numbers ``k`` in h/Mpc; 0 where k is 0."""
        k = np.asarray(k, dtype=np.float64)
        safe = np.where(k > 0, k, 1.0)
        return np.where(k > 0, self._amplitude * safe**self.n_s * transfer(safe, self) ** 2, 0.0)

    @cached_property
    def _amplitude(self) -> float:
        k = np.geomspace(1e-4, 1e2, 1024)
        shape = k**self.n_s * transfer(k, self) ** 2
        return self.sigma_8**2 / variance(k, shape, radius=8.0)


def top_hat(x: NDArray[np.floating]) -> Array:
    """Fourier transform of a ball of radius R at x = kR, 1 at 0."""
    x = np.asarray(x, dtype=np.float64)
    safe = np.where(x > 1e-3, x, 1.0)
    exact = 3 * (np.sin(safe) - safe * np.cos(safe)) / safe**3
    return np.where(x > 1e-3, exact, 1 - x**2 / 10)


def variance(k: Array, power: Array, radius: float) -> float:
    """Variance of the density in balls of ``radius`` (Mpc/h) for a tabulated spectrum, integrated over ln k."""
    from scipy.integrate import trapezoid

    integrand = k**3 * power * top_hat(k * radius) ** 2 / (2 * np.pi**2)
    return float(trapezoid(integrand, np.log(k)))


def transfer(k: Array, cosmology: Cosmology) -> Array:
    """Transfer function with baryon oscillations, ``k`` in h/Mpc (Eisenstein & Hu 1998, ApJ 496, 605, section 3)."""
    scales = _Scales.of(cosmology)
    k = k * cosmology.h
    baryon_fraction = OMEGA_B / cosmology.omega_m
    cold = _cold_transfer(k, scales, baryon_fraction)
    baryons = _baryon_transfer(k, scales, baryon_fraction)
    return baryon_fraction * baryons + (1 - baryon_fraction) * cold


@dataclass(frozen=True)
class _Scales:
    """Physical scales of Eisenstein & Hu 1998, equations 2 to 7; lengths in Mpc, wave numbers in 1/Mpc."""

    matter: float
    """Omega_m h^2."""
    k_equality: float
    k_silk: float
    z_equality: float
    z_drag: float
    ratio_drag: float
    """Baryon to photon momentum density at the drag epoch."""
    sound_horizon: float

    @classmethod
    def of(cls, cosmology: Cosmology) -> _Scales:
        matter = cosmology.omega_m * cosmology.h**2
        baryons = OMEGA_B * cosmology.h**2
        theta = T_CMB / 2.7
        z_equality = 2.50e4 * matter / theta**4
        k_equality = 7.46e-2 * matter / theta**2
        b1 = 0.313 * matter**-0.419 * (1 + 0.607 * matter**0.674)
        b2 = 0.238 * matter**0.223
        z_drag = 1291 * matter**0.251 / (1 + 0.659 * matter**0.828) * (1 + b1 * baryons**b2)
        ratio_drag = 31.5 * baryons / theta**4 * 1000 / z_drag
        ratio_equality = 31.5 * baryons / theta**4 * 1000 / z_equality
        logarithm = np.log(
            (np.sqrt(1 + ratio_drag) + np.sqrt(ratio_drag + ratio_equality)) / (1 + np.sqrt(ratio_equality))
        )
        sound_horizon = float(2 / (3 * k_equality) * np.sqrt(6 / ratio_equality) * logarithm)
        k_silk = 1.6 * baryons**0.52 * matter**0.73 * (1 + (10.4 * matter) ** -0.95)
        return cls(matter, k_equality, k_silk, z_equality, z_drag, ratio_drag, sound_horizon)


def _pressureless(k: Array, scales: _Scales, alpha: float, beta: float) -> Array:
    """Equations 10, 19 and 20."""
    q = k / (13.41 * scales.k_equality)
    logarithm = np.log(np.e + 1.8 * beta * q)
    c = 14.2 / alpha + 386 / (1 + 69.9 * q**1.08)
    return np.asarray(logarithm / (logarithm + c * q**2))


def _cold_transfer(k: Array, scales: _Scales, baryon_fraction: float) -> Array:
    """Equations 11, 12, 17 and 18."""
    matter = scales.matter
    a1 = (46.9 * matter) ** 0.670 * (1 + (32.1 * matter) ** -0.532)
    a2 = (12.0 * matter) ** 0.424 * (1 + (45.0 * matter) ** -0.582)
    alpha = a1**-baryon_fraction * a2 ** -(baryon_fraction**3)
    b1 = 0.944 / (1 + (458 * matter) ** -0.708)
    b2 = (0.395 * matter) ** -0.0266
    beta = 1 / (1 + b1 * ((1 - baryon_fraction) ** b2 - 1))
    f = 1 / (1 + (k * scales.sound_horizon / 5.4) ** 4)
    return f * _pressureless(k, scales, 1.0, beta) + (1 - f) * _pressureless(k, scales, alpha, beta)


def _baryon_transfer(k: Array, scales: _Scales, baryon_fraction: float) -> Array:
    """Equations 13 to 15 and 21 to 24."""
    matter, horizon = scales.matter, scales.sound_horizon
    y = (1 + scales.z_equality) / (1 + scales.z_drag)
    root = np.sqrt(1 + y)
    g = y * (-6 * root + (2 + 3 * y) * np.log((root + 1) / (root - 1)))
    alpha = 2.07 * scales.k_equality * horizon * (1 + scales.ratio_drag) ** -0.75 * g
    beta = 0.5 + baryon_fraction + (3 - 2 * baryon_fraction) * np.sqrt((17.2 * matter) ** 2 + 1)
    node = 8.41 * matter**0.435
    x = k * horizon
    shifted = x / (1 + (node / x) ** 3) ** (1 / 3)
    damping = np.exp(-((k / scales.k_silk) ** 1.4))
    envelope = _pressureless(k, scales, 1.0, 1.0) / (1 + (x / 5.2) ** 2) + alpha / (1 + (beta / x) ** 3) * damping
    return np.asarray(envelope * np.sinc(shifted / np.pi))
