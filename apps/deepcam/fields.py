"""The state of the simulated atmosphere, and the sixteen published variables derived from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from apps.deepcam.grid import Grid

GRAVITY = 9.80665
GAS_CONSTANT = 287.05
AIR_DENSITY = 1.15
MM_PER_DAY = 1e-3 / 86400
"""Rain of one millimetre per day, in m/s."""
LOWEST_LEVEL = 0.0075
"""Logarithm of the ratio of surface pressure to the pressure of the model's lowest level."""
NOISE = (0.004, 0.05, 0.05, 0.05, 0.05, 0.004, 3.0, 3.0, 0.03, 0.03, 0.03, 0.05, 0.05, 0.3, 0.3, 0.02)
"""Standard deviation of grid-scale noise by channel, in the channel's unit; relative for TMQ, QREFHT and PRECT."""
RELATIVE_NOISE = (0, 5, 10)


@dataclass(eq=False)
class Fields:
    """Fields (height, width) float32 that the parts of the simulator add to.

    ``tmq`` is column water in kg/m^2, winds are in m/s, ``q`` is reference height humidity in kg/kg, ``psl`` is in Pa,
    temperatures are in K (``t850`` is not published but carries the thickness), ``prect`` is in m/s.
    """

    tmq: Tensor
    u850: Tensor
    v850: Tensor
    ubot: Tensor
    vbot: Tensor
    q: Tensor
    psl: Tensor
    t850: Tensor
    t500: Tensor
    t200: Tensor
    prect: Tensor
    ts: Tensor
    trefht: Tensor


def saturation_humidity(temperature: Tensor, pressure: Tensor) -> Tensor:
    """Specific humidity of saturated air in kg/kg (Bolton 1980), from kelvin and pascal."""
    celsius = temperature - 273.15
    vapour = 611.2 * torch.exp(17.67 * celsius / (celsius + 243.5).clamp(min=50.0))
    return 0.622 * vapour / (pressure - 0.378 * vapour).clamp(min=vapour)


def surface_pressure(psl: Tensor, trefht: Tensor, grid: Grid) -> Tensor:
    """Pressure at the ground in Pa, from that at sea level: hydrostatic, with a standard lapse rate."""
    column = trefht + 0.00325 * grid.surface
    return psl * torch.exp(-GRAVITY / GAS_CONSTANT * grid.surface / column)


def publish(fields: Fields, grid: Grid, rng: np.random.Generator) -> Tensor:
    """Return the published sample (height, width, 16) float32: derived variables, limits and grid-scale noise.

    PS, Z1000, Z200 and ZBOT follow from hydrostatic balance; humidity does not exceed saturation.
    """
    ps = surface_pressure(fields.psl, fields.trefht, grid)
    q = torch.minimum(fields.q, 0.99 * saturation_humidity(fields.trefht, ps)).clamp(min=1e-5)
    tmq = fields.tmq.clamp(min=0.15)
    tmq = torch.where(tmq > 60, 60 + 20 * torch.tanh((tmq - 60) / 20), tmq)
    scale_height = GAS_CONSTANT / GRAVITY
    virtual = fields.trefht * (1 + 0.61 * q)
    z1000 = scale_height * 288.0 * torch.log(fields.psl / 1e5)
    thickness_temperature = 0.3 * fields.t850 + 0.45 * fields.t500 + 0.25 * fields.t200 + 2.5
    z200 = z1000 + scale_height * math.log(5) * thickness_temperature
    zbot = scale_height * virtual * LOWEST_LEVEL
    ordered = (
        tmq, fields.u850, fields.v850, fields.ubot, fields.vbot, q, ps, fields.psl, fields.t200, fields.t500,
        fields.prect, fields.ts, fields.trefht, z1000, z200, zbot,
    )  # fmt: skip
    sample = torch.from_numpy(rng.standard_normal((len(ordered), *q.shape), dtype=np.float32)).to(grid.device)
    for channel, (noise, field) in enumerate(zip(sample, ordered, strict=True)):
        noise.mul_(NOISE[channel])
        if channel in RELATIVE_NOISE:
            noise.add_(1).mul_(field)
        else:
            noise.add_(field)
    return sample.permute(1, 2, 0).contiguous()
