"""Density fields on a periodic grid: Gaussian realizations, Lagrangian displacements, particle counts (torch).

Lengths are in cells of the grid that a function works on, unless stated otherwise; grids are cubes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from apps.cosmoflow.cosmology import Cosmology


def wave_numbers(size: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Integer wave numbers along the three axes of an ``rfftn`` grid, float32, shaped to broadcast."""
    full = torch.fft.fftfreq(size, 1 / size, device=device)
    half = torch.fft.rfftfreq(size, 1 / size, device=device)
    return full[:, None, None], full[None, :, None], half[None, None, :]


def linear_field(noise: Tensor, cosmology: Cosmology, cell: float) -> Tensor:
    """Fourier modes (n, n, n//2+1) of the linear density contrast today.

    ``noise`` (n, n, n) is white with unit variance; ``cell`` is the edge of a cell in Mpc/h. The modes are those of
    ``torch.fft.rfftn``, and each has the variance given by the power spectrum.
    """
    size = noise.shape[0]
    # |n|^2 is an integer, so a table over it is exact and as short as the grid allows
    k = 2 * math.pi / (size * cell) * np.sqrt(np.arange(3 * (size // 2) ** 2 + 1))
    table = torch.from_numpy(np.sqrt(cosmology.power(k) / cell**3)).to(noise)
    kx, ky, kz = wave_numbers(size, noise.device)
    modes: Tensor = torch.fft.rfftn(noise) * table[(kx**2 + ky**2 + kz**2).long()]
    return modes


def displacements(modes: Tensor, size: int, second_order: bool = True) -> tuple[Tensor, Tensor]:
    """First- and second-order Lagrangian displacement fields, each (3, n, n, n), in cells.

    A particle at q moves to ``q + D1 * first + D2 * second`` (Bouchet et al. 1995; Scoccimarro 1998, appendix D).
    ``modes`` are those of the linear density contrast. Without ``second_order`` the second field is empty.
    """
    waves = _derivatives(size, modes.device)
    inverse = _inverse_laplacian(size, modes.device)
    potential = modes * inverse
    first = torch.stack([_real(-1j * k * potential, size) for k in waves])
    if not second_order:
        return first, first.new_empty(0)
    source = torch.fft.rfftn(_second_order_source(potential, waves, size)) * inverse
    return first, torch.stack([_real(1j * k * source, size) for k in waves])


def _second_order_source(potential: Tensor, waves: list[Tensor], size: int) -> Tensor:
    """Sum over i > j of phi,ii phi,jj - phi,ij^2 on the grid."""
    xx, yy, zz = (_real(-(k * k) * potential, size) for k in waves)
    source: Tensor = xx * yy
    source += xx * zz
    source += yy * zz
    for i, j in ((0, 1), (0, 2), (1, 2)):
        source -= _real(-(waves[i] * waves[j]) * potential, size) ** 2
    return source


def _real(modes: Tensor, size: int) -> Tensor:
    field: Tensor = torch.fft.irfftn(modes, s=(size, size, size))
    return field


def _derivatives(size: int, device: torch.device) -> list[Tensor]:
    """Wave vectors per cell; the Nyquist plane has no derivative on the grid and is left out."""
    return [torch.where(k.abs() * 2 == size, 0.0, k * (2 * math.pi / size)) for k in wave_numbers(size, device)]


def _inverse_laplacian(size: int, device: torch.device) -> Tensor:
    kx, ky, kz = wave_numbers(size, device)
    square = (kx**2 + ky**2 + kz**2) * (2 * math.pi / size) ** 2
    square[0, 0, 0] = torch.inf
    return -1 / square


def count_particles(positions: Iterable[Tensor], size: int) -> Tensor:
    """Count the particles in each cell of a periodic grid, (size, size, size) int64.

    ``positions`` yields the three coordinates in turn, in cells; cell i covers [i, i + 1).
    """
    kind = torch.int32 if size**3 <= torch.iinfo(torch.int32).max else torch.int64
    index: Tensor | int = 0
    for coordinate in positions:
        index = index * size + _wrapped(coordinate.floor().to(kind), size)
    assert isinstance(index, Tensor)
    return torch.bincount(index.flatten(), minlength=size**3).view(size, size, size)


def _wrapped(cells: Tensor, size: int) -> Tensor:
    """Whole numbers modulo ``size``, in place; for a power of two without a division, which is ten times as fast."""
    return cells.remainder_(size) if size & (size - 1) else cells.bitwise_and_(size - 1)


def power_spectra(fields: Tensor) -> tuple[Tensor, Tensor]:
    """Power and cross power of fields (..., C, n, n, n) in shells of integer wave number 1, 2, ... n // 2.

    Returns (..., C * (C + 1) / 2, n // 2) float64 in cells^3, with the pairs in the order of ``torch.triu_indices``,
    and the number of modes in each shell, counted over the whole Fourier cube.
    """
    size = fields.shape[-1]
    modes = torch.fft.rfftn(fields, dim=(-3, -2, -1)).flatten(-3)
    products, numbers = [], []
    for members, weight in modes_by_shell(size, fields.device):  # a shell at a time stays in the caches
        parts = torch.view_as_real(modes.index_select(-1, members)).double()  # (..., C, m, 2)
        products.append((parts * weight[:, None]).flatten(-2) @ parts.flatten(-2).mT)
        numbers.append(weight.sum())
    number = torch.stack(numbers)
    first, second = torch.triu_indices(fields.shape[-4], fields.shape[-4])
    return torch.stack(products, dim=-1)[..., first, second, :] / (number * size**3), number


@lru_cache(maxsize=1)
def modes_by_shell(size: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """The modes of an ``rfftn`` grid, flattened, in each shell 1, 2, ... size // 2: their places and their weights.

    A weight (float64) says how many modes of the whole cube one stands for: the half of the cube that ``rfftn`` leaves
    out mirrors the planes strictly between 0 and Nyquist. Modes in the corners, beyond the last shell, are left out.
    """
    kx, ky, kz = wave_numbers(size, device)
    shell = (kx**2 + ky**2 + kz**2).sqrt().round().long().clamp(max=size // 2 + 1).flatten()
    weight = torch.where((kz == 0) | (kz * 2 == size), 1.0, 2.0).double().expand(size, size, -1).flatten()
    ends = torch.bincount(shell, minlength=size // 2 + 2).cumsum(0).tolist()
    order = shell.argsort(stable=True)
    return [(order[a:b], weight[order[a:b]]) for a, b in pairwise(ends[: size // 2 + 1])]
