"""Fields follow their spectrum, displacements their analytic solutions, and counts conserve particles."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from apps.cosmoflow.cosmology import PLANCK_2015, Cosmology, top_hat
from apps.cosmoflow.fields import count_particles, displacements, linear_field, power_spectra, wave_numbers

PLANCK = Cosmology(*PLANCK_2015)


def white(seed: int, size: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((size,) * 3, dtype=np.float32))


def wave_lengths(size: int, cell: float) -> np.ndarray:
    """|k| in h/Mpc of the modes of rfftn, by NumPy's own frequencies."""
    full = 2 * np.pi * np.fft.fftfreq(size, cell)
    half = 2 * np.pi * np.fft.rfftfreq(size, cell)
    return np.sqrt(full[:, None, None] ** 2 + full[None, :, None] ** 2 + half**2)


def test_power_of_linear_fields_follows_the_input_within_cosmic_variance() -> None:
    """|mode|^2 over its expectation, summed over n independent complex modes, is half a chi-square of 2n."""
    size, cell, fields = 32, 6.0, 8
    k = wave_lengths(size, cell)
    expected = PLANCK.power(k) * size**3 / cell**3
    inside = np.zeros(k.shape, dtype=bool)
    inside[:, :, 1 : size // 2] = True  # modes that are independent and complex
    powers = [linear_field(white(seed, size), PLANCK, cell).abs().double().numpy() ** 2 for seed in range(fields)]
    ratio = np.mean(powers, axis=0) / np.where(k > 0, expected, 1)
    edges = np.linspace(0, k.max() + 1e-9, 13)
    for low, high in pairwise(edges):
        band = ratio[inside & (k >= low) & (k < high)]
        freedom = 2 * band.size * fields
        assert freedom > 100
        probability = chi2.cdf(band.sum() * 2 * fields, freedom)
        assert 1e-4 < probability < 1 - 1e-4


def test_modes_belong_to_a_real_field_with_that_spectrum() -> None:
    """The measured spectrum in shells agrees with the one that each shell's modes should have."""
    size, cell = 48, 5.0
    modes = linear_field(white(3, size), PLANCK, cell)
    field = torch.fft.irfftn(modes, s=(size,) * 3)
    power, number = power_spectra(field[None])
    k = wave_lengths(size, cell)
    unit, _ = power_spectra(torch.fft.irfftn(torch.from_numpy(np.sqrt(PLANCK.power(k) * size**3)) + 0j)[None])
    error = (power[0] * cell**3 / unit[0] - 1) / (2 / number).sqrt()
    assert error.abs().max() < 4
    assert error.mean().abs() < 4 / math.sqrt(len(error))


def test_sigma_8_of_the_mean_of_64_linear_fields() -> None:
    size, cell = 64, 4.0
    window = torch.from_numpy(top_hat(8 * wave_lengths(size, cell))).float()
    weight = torch.full((size // 2 + 1,), 2.0)
    weight[[0, -1]] = 1.0
    variances = []
    for seed in range(64):
        modes = linear_field(white(100 + seed, size), PLANCK, cell)
        variances.append(float(((modes.abs() * window) ** 2 * weight).double().sum()) / size**6)
    assert math.sqrt(np.mean(variances)) == pytest.approx(PLANCK.sigma_8, rel=0.02)


def test_power_spectra_are_those_of_a_plain_sum_over_modes() -> None:
    size = 8
    fields = torch.randn(2, size, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    power, number = power_spectra(fields)
    modes = np.fft.fftn(fields.numpy(), axes=(1, 2, 3))
    n = np.fft.fftfreq(size, 1 / size)
    shell = np.rint(np.sqrt(n[:, None, None] ** 2 + n[None, :, None] ** 2 + n**2)).astype(int)
    for row, (i, j) in enumerate(((0, 0), (0, 1), (1, 1))):
        products = (modes[i] * modes[j].conj()).real / size**3
        np.testing.assert_allclose(power[row], [products[shell == s].mean() for s in range(1, 5)], rtol=1e-12)
    np.testing.assert_array_equal(number, [(shell == s).sum() for s in range(1, 5)])


def plane(size: int, axis: int, harmonic: int) -> Tensor:
    """Phase k * q along one axis, (size, size, size) float64."""
    shape = [1, 1, 1]
    shape[axis] = size
    return (
        (2 * math.pi * harmonic / size * torch.arange(size, dtype=torch.float64)).view(shape).expand(size, size, size)
    )


def test_a_plane_wave_moves_as_zeldovich_says_and_has_no_second_order() -> None:
    size, amplitude, harmonic = 32, 0.4, 3
    phase = plane(size, 1, harmonic)
    first, second = displacements(torch.fft.rfftn(amplitude * phase.cos()), size)
    k = 2 * math.pi * harmonic / size
    torch.testing.assert_close(first[1], -amplitude / k * phase.sin(), atol=1e-5, rtol=0)
    assert first[0].abs().max() < 1e-5
    assert first[2].abs().max() < 1e-5
    assert second.abs().max() < 1e-5


def test_crossed_plane_waves_have_the_analytic_second_order() -> None:
    """delta = a cos kx + b cos ky gives phi2 = -ab / (2 k^2) cos kx cos ky."""
    size, a, b, harmonic = 16, 0.3, 0.5, 2
    x, y = plane(size, 0, harmonic), plane(size, 1, harmonic)
    _, second = displacements(torch.fft.rfftn(a * x.cos() + b * y.cos()), size)
    k = 2 * math.pi * harmonic / size
    torch.testing.assert_close(second[0], a * b / (2 * k) * x.sin() * y.cos(), atol=1e-5, rtol=0)
    torch.testing.assert_close(second[1], a * b / (2 * k) * x.cos() * y.sin(), atol=1e-5, rtol=0)
    assert second[2].abs().max() < 1e-5


def test_the_two_orders_together_have_the_skewness_of_perturbation_theory() -> None:
    """<delta^3> / <delta^2>^2 is 4 for the first order alone and 34/7 for both (Bouchet et al. 1992)."""
    size, sigma = 48, 0.03
    n = torch.stack(torch.broadcast_tensors(*wave_numbers(size)))
    skewness = {}
    for order, d2 in (("first", 0.0), ("both", -3 / 7)):
        thirds, seconds = [], []
        for sign in (1, -1):  # a field and its negative, so that the skewness of the draw cancels
            modes = torch.fft.rfftn(white(5, size).double()) * ((n**2).sum(0).sqrt() < size / 5)
            field = torch.fft.irfftn(modes, s=(size,) * 3)
            first, second = displacements(modes * (sign * sigma / field.std()), size)
            shift = torch.fft.rfftn(first + d2 * second, dim=(1, 2, 3))
            wave = 2j * math.pi / size * n.double()
            gradient = torch.fft.irfftn(wave[:, None] * shift, s=(size,) * 3, dim=(2, 3, 4))
            volume = torch.linalg.det(gradient.permute(2, 3, 4, 0, 1) + torch.eye(3, dtype=torch.float64))
            thirds.append(float((volume * (1 / volume - 1) ** 3).mean()))
            seconds.append(float((volume * (1 / volume - 1) ** 2).mean()))
        skewness[order] = np.mean(thirds) / np.mean(seconds) ** 2
    assert skewness["first"] == pytest.approx(4.0, rel=0.03)
    assert skewness["both"] == pytest.approx(34 / 7, rel=0.03)


def test_counts_of_a_zeldovich_plane_wave_are_exact() -> None:
    """Before shells cross, the mass left of x(q) is the mass left of q."""
    size, particles, amplitude = 16, 200_000, 0.6
    q = (torch.arange(particles, dtype=torch.float64) + 0.5) * size / particles
    k = 2 * math.pi / size
    counts = count_particles((q - amplitude / k * torch.sin(k * q), torch.zeros(()), torch.zeros(())), size)[:, 0, 0]
    edges = torch.arange(size + 1, dtype=torch.float64)
    origin = edges.clone()
    for _ in range(200):  # invert x = q - a/k sin kq, a contraction
        origin = edges + amplitude / k * torch.sin(k * origin)
    torch.testing.assert_close(counts.double(), origin.diff() * particles / size, atol=2, rtol=0)


@pytest.mark.parametrize("size", [7, 8])
def test_counts_conserve_particles_and_wrap_around(size: int) -> None:
    """Powers of two wrap around by their bits, other sizes by division."""
    positions = 40 * torch.randn(3, 5000, generator=torch.Generator().manual_seed(0))
    counts = count_particles(positions, size)
    assert int(counts.sum()) == 5000
    expected = np.zeros((size, size, size), dtype=int)
    for x, y, z in np.floor(positions.double().numpy()).astype(int).T % size:
        expected[x, y, z] += 1
    np.testing.assert_array_equal(counts, expected)
