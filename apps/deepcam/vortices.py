"""One vortex: Holland's pressure profile with its gradient wind, core temperature, moisture and rain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from apps.deepcam.fields import AIR_DENSITY, Fields
from apps.deepcam.grid import EARTH_RADIUS_M, EARTH_ROTATION_PER_S, Grid, patch_around


@dataclass(frozen=True)
class Vortex:
    """A low: where it is (degrees), how deep (Pa), how wide (``radius_m`` of the strongest wind), what it carries.

    ``core_k`` is the temperature anomaly at 500 hPa: positive in a tropical cyclone, negative in a cold low.
    ``moisture`` is in kg/m^2, ``rain_mm_per_day`` is the mean rate in the eyewall, and ``reach_m`` is the distance at
    which the winds have faded.
    """

    lat: float
    lon: float
    depth_pa: float
    radius_m: float
    shape: float
    core_k: float
    moisture: float
    rain_mm_per_day: float
    reach_m: float
    spiral_phase: float

    @property
    def coriolis(self) -> float:
        """Coriolis parameter at the centre in 1/s."""
        return 2 * EARTH_ROTATION_PER_S * math.sin(math.radians(self.lat))


def holland_pressure_deficit(distance: Tensor, depth_pa: float, radius_m: float, shape: float) -> Tensor:
    """Pressure deficit relative to the surroundings, in Pa, at a distance in metres (Holland 1980)."""
    return depth_pa * (1 - torch.exp(-((radius_m / distance) ** shape)))


def holland_gradient_wind(distance: Tensor, depth_pa: float, radius_m: float, shape: float, coriolis: float) -> Tensor:
    """Tangential speed in m/s that balances Holland's pressure gradient, Coriolis and centrifugal force."""
    ratio = (radius_m / distance) ** shape
    cyclostrophic = shape * depth_pa / AIR_DENSITY * ratio * torch.exp(-ratio)
    rotation = distance * abs(coriolis) / 2
    return (cyclostrophic + rotation**2).sqrt() - rotation


def add_vortex(fields: Fields, grid: Grid, vortex: Vortex) -> None:
    """Add the vortex to the fields, in place; winds turn counter-clockwise in the north, clockwise in the south."""
    margin = math.degrees(1.6 * vortex.reach_m / EARTH_RADIUS_M)
    wide = margin / math.cos(math.radians(min(abs(vortex.lat) + margin, 75)))
    patch = patch_around(grid, vortex.lat - margin, vortex.lat + margin, vortex.lon - wide, vortex.lon + wide)
    lat, lon = grid.lat[patch.rows], grid.lon[:, patch.columns]
    offset = torch.remainder(lon - math.radians(vortex.lon) + math.pi, 2 * math.pi) - math.pi
    east = EARTH_RADIUS_M * lat.cos() * offset
    north = (EARTH_RADIUS_M * (lat - math.radians(vortex.lat))).expand_as(east)
    distance = torch.hypot(east, north).clamp(min=1000.0)
    fade = torch.exp(-((distance / vortex.reach_m) ** 4))
    profile = (distance, vortex.depth_pa, vortex.radius_m, vortex.shape)
    patch.add(fields.psl, -fade * holland_pressure_deficit(*profile))

    speed = fade * holland_gradient_wind(*profile, vortex.coriolis)
    turn = math.copysign(1.0, vortex.lat)
    around = (-turn * north / distance, turn * east / distance)
    inward = (-east / distance, -north / distance)
    drag = 0.8 - 0.25 * patch.read(grid.land)
    for u, v, factor, angle in ((fields.u850, fields.v850, 1.0, 8.0), (fields.ubot, fields.vbot, drag, 22.0)):
        cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        patch.add(u, factor * speed * (cosine * around[0] + sine * inward[0]))
        patch.add(v, factor * speed * (cosine * around[1] + sine * inward[1]))

    scaled = distance / vortex.radius_m
    core = vortex.core_k * torch.exp(-((scaled / 2.5) ** 2))
    patch.add(fields.t500, core)
    patch.add(fields.t200, 0.7 * core)
    patch.add(fields.t850, 0.35 * core)
    angle_around = turn * torch.atan2(north, east)
    arms = 1 + 0.45 * torch.cos(2 * angle_around + 3.0 * scaled.log() + vortex.spiral_phase)
    moist = fade * torch.exp(-((scaled / 4.5) ** 1.5))
    patch.add(fields.tmq, vortex.moisture * moist * (0.75 + 0.25 * arms))
    patch.add(fields.q, 1e-4 * vortex.moisture * moist)
    eyewall = torch.exp(-((scaled / 2.2) ** 2)) * (scaled / (scaled + 0.25))
    rain = vortex.rain_mm_per_day * 1e-3 / 86400 * fade
    patch.add(fields.prect, rain * arms * (eyewall + 0.15 * torch.exp(-((scaled / 5) ** 2))))
