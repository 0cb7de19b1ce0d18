"""Random weather: correlated fields on the sphere with a prescribed spectrum."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from apps.deepcam.grid import EARTH_RADIUS_M, Grid

Kind = Literal["eddy", "tracer"]

LARGEST_DEGREE = 127
"""Spherical harmonics go up to this degree; beyond it their tables would be too large, so waves are planar."""


def eddy_spectrum(degree: npt.NDArray[np.float64], peak: float = 9.0) -> npt.NDArray[np.float64]:
    """Variance of a stream function in m^4/s^2 by degree, for winds of 1 m/s root mean square per component.

    Kinetic energy rises as l^2 to the ``peak`` of mid-latitude storms and falls as l^-3 beyond it, as observed
    (Nastrom and Gage 1985).
    """

    def energy(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return (x / peak) ** 2 / (1 + (x / peak) ** 5)

    total = energy(np.arange(1.0, 1000.0)).sum()
    wind_to_stream = EARTH_RADIUS_M**2 / np.maximum(degree * (degree + 1), 1)
    return np.asarray(2 * energy(degree) / total * wind_to_stream)


def tracer_spectrum(degree: npt.NDArray[np.float64], peak: float = 8.0) -> npt.NDArray[np.float64]:
    """Variance by degree of a tracer of unit variance: flat up to the ``peak``, then l^-2."""

    def power(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray((x / peak) / (1 + (x / peak) ** 3))

    return np.asarray(power(degree) / power(np.arange(1.0, 1000.0)).sum())


def largest_degree(grid: Grid) -> int:
    """Return the highest degree of spherical harmonics that ``grid`` resolves and the tables hold."""
    return min(LARGEST_DEGREE, min(grid.height, grid.width) // 2 - 1)


@cache
def legendre_table(height: int, degree: int) -> npt.NDArray[np.float32]:
    """Orthonormal associated Legendre functions (order m, height, degree l) at the rows of a grid, float32.

    ``Y_lm = table[m, :, l] exp(i m lon)`` has unit norm on the sphere. Recurrence in l at fixed m, in float64.
    """
    lat = (np.arange(height) + 0.5) * (math.pi / height) - math.pi / 2
    sine, cosine = np.sin(lat), np.cos(lat)
    orders = np.arange(degree + 1)
    table = np.zeros((degree + 1, height, degree + 1))
    sectoral = np.full(height, math.sqrt(1 / (4 * math.pi)))
    for m in orders:
        if m:
            sectoral = sectoral * cosine * math.sqrt((2 * m + 1) / (2 * m))
        table[m, :, m] = sectoral
    for n in range(1, degree + 1):
        below = orders[:n].astype(float)[:, None]
        factor = np.sqrt((4 * n**2 - 1) / (n**2 - below**2))
        value = factor * sine * table[:n, :, n - 1]
        if n > 1:
            before = below[: n - 1]
            back = np.sqrt(((n - 1) ** 2 - before**2) / (4 * (n - 1) ** 2 - 1))
            value[: n - 1] -= factor[: n - 1] * back * table[: n - 1, :, n - 2]
        table[:n, :, n] = value
    return table.astype(np.float32)


def synthesize(rng: np.random.Generator, kinds: tuple[Kind, ...], grid: Grid) -> Tensor:
    """Draw Gaussian fields (len(kinds), height, width) float32 with the spectrum of an ``eddy`` or a ``tracer``.

    They are isotropic on the sphere up to ``largest_degree``; finer waves fade towards the poles, as their cells
    shrink.
    """
    degree, count = largest_degree(grid), len(kinds)
    coefficients = rng.standard_normal((degree + 1, degree + 1, count, 2), dtype=np.float32)
    coefficients *= np.stack([_mode_amplitude(kind, degree) for kind in kinds], axis=1)[None, :, :, None]
    coefficients[0, :, :, 0] *= math.sqrt(2)
    coefficients[0, :, :, 1] = 0
    packed = torch.from_numpy(coefficients.reshape(degree + 1, degree + 1, 2 * count)).to(grid.device)
    waves = torch.bmm(_device_table(grid.height, degree, grid.device), packed)
    waves = torch.view_as_complex(waves.view(degree + 1, grid.height, count, 2)).permute(2, 1, 0)
    fields: Tensor = torch.fft.irfft(waves, n=grid.width, dim=-1, norm="forward")
    if degree < grid.height // 2 - 1:
        shape = (count, grid.height, grid.width // 2 + 1, 2)
        noise = torch.view_as_complex(torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(grid.device))
        for i, kind in enumerate(kinds):
            waves = noise[i] * _fine_amplitude(kind, grid.height, grid.width, degree, grid.device)
            fields[i] += torch.fft.irfft2(waves, s=(grid.height, grid.width), norm="forward") * grid.lat.cos()
    return fields


def _spectrum(kind: Kind, degree: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return eddy_spectrum(degree) if kind == "eddy" else tracer_spectrum(degree)


@cache
def _mode_amplitude(kind: Kind, degree: int) -> npt.NDArray[np.float32]:
    """Standard deviation of the real and of the imaginary part of a coefficient, by degree."""
    number = np.arange(degree + 1.0)
    return np.asarray(np.sqrt(_spectrum(kind, number) * 2 * math.pi / (2 * number + 1)), dtype=np.float32)


@cache
def _device_table(height: int, degree: int, device: torch.device) -> Tensor:
    return torch.from_numpy(legendre_table(height, degree)).to(device)


@cache
def _fine_amplitude(kind: Kind, height: int, width: int, degree: int, device: torch.device) -> Tensor:
    """Standard deviation of the planar waves beyond ``degree``, (height, width // 2 + 1)."""
    meridional = np.fft.fftfreq(height, d=0.5 / height)[:, None]
    wavenumber = np.hypot(meridional, np.fft.fftfreq(width, d=1 / width)[None, :])
    ring = np.where((wavenumber > degree) & (wavenumber < height // 2), np.rint(wavenumber), 0).astype(int)
    modes = np.bincount(ring.ravel())
    variance = np.where(ring > 0, _spectrum(kind, ring.astype(float)) / modes[ring], 0)
    half = np.sqrt(variance[:, : width // 2 + 1] / 2).astype(np.float32)
    return torch.from_numpy(half).to(device)
