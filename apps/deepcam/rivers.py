"""Atmospheric rivers: long filaments of moisture with a low-level jet, from the subtropics to the mid-latitudes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from apps.deepcam.fields import AIR_DENSITY, MM_PER_DAY, Fields
from apps.deepcam.grid import EARTH_RADIUS_M, Grid, patch_around

POINTS = 48
# Hemisphere, longitudes where rivers begin, relative number (after Guan and Waliser 2015).
OCEANS = (
    (1, (138, 215), 0.28),
    (1, (278, 325), 0.22),
    (-1, (170, 270), 0.22),
    (-1, (305, 355), 0.12),
    (-1, (35, 115), 0.16),
)


@dataclass(frozen=True)
class River:
    """A filament from (``lat``, ``lon``) over ``delta_lat`` and ``delta_lon`` degrees; it runs poleward and eastward.

    ``half_width_m`` is the e-folding half width, ``jet`` the added wind at 850 hPa in m/s, ``moisture`` the added
    column water in kg/m^2; ``meander`` in degrees bends the path.
    """

    lat: float
    lon: float
    delta_lat: float
    delta_lon: float
    meander: float
    half_width_m: float
    jet: float
    moisture: float
    rain_mm_per_day: float

    def path(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
        """Latitudes and longitudes in degrees of ``POINTS`` points along the river."""
        t = np.linspace(0, 1, POINTS)
        sign = math.copysign(1, self.lat)
        lat = self.lat + sign * (self.delta_lat * t**1.15 + self.meander * np.sin(2 * math.pi * t))
        return lat, self.lon + self.delta_lon * t


def add_river(fields: Fields, grid: Grid, river: River) -> None:
    """Add moisture, jet, the pressure gradient that balances the jet, warmth ahead of it and rain, in place."""
    lats, lons = river.path()
    margin = math.degrees(3.2 * river.half_width_m / EARTH_RADIUS_M)
    wide = margin / math.cos(math.radians(min(float(np.abs(lats).max()) + margin, 75)))
    patch = patch_around(grid, lats.min() - margin, lats.max() + margin, lons.min() - wide, lons.max() + wide)
    along, across, tangent = _coordinates(patch.read(grid.xyz), lats, lons)
    ends = ((along / 0.14).clamp(0, 1) * ((1 - along) / 0.10).clamp(0, 1)) ** 0.8
    scaled = across / river.half_width_m
    profile = ends * torch.exp(-(scaled**2))
    patch.add(fields.u850, river.jet * profile * tangent[0])
    patch.add(fields.v850, river.jet * profile * tangent[1])
    drag = 0.62 - 0.25 * patch.read(grid.land)
    patch.add(fields.ubot, drag * river.jet * profile * tangent[0])
    patch.add(fields.vbot, drag * river.jet * profile * tangent[1])
    poleward_fade = 1 - 0.45 * along
    patch.add(fields.tmq, river.moisture * profile * poleward_fade)
    patch.add(fields.q, 1.9e-4 * river.moisture * profile * poleward_fade)
    patch.add(fields.prect, river.rain_mm_per_day * MM_PER_DAY * profile**1.5 * (0.4 + 1.2 * along))
    # In the north the wind blows with low pressure on its left: sign(f) * left is negative pressure there.
    coriolis = grid.coriolis[patch.rows]
    ridge = ends * torch.erf(scaled) * torch.exp(-((scaled / 2.5) ** 2))
    patch.add(fields.psl, -AIR_DENSITY * coriolis * river.jet * river.half_width_m * 0.8 * ridge)
    warm = -torch.sign(coriolis) * ridge
    for temperature, amplitude in ((fields.t850, 2.0), (fields.t500, 1.2), (fields.trefht, 0.8)):
        patch.add(temperature, amplitude * warm + 0.5 * amplitude * profile)


def _coordinates(
    xyz: Tensor, lats: np.ndarray[tuple[int], np.dtype[np.float64]], lons: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """For each cell: position along the path (0 to 1), distance to its left in metres, its direction (east, north)."""
    lat, lon = np.radians(lats), np.radians(lons)
    points = np.stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)), axis=1)
    steps = np.gradient(points, axis=0)
    steps -= (steps * points).sum(1, keepdims=True) * points
    length = np.linalg.norm(steps, axis=1, keepdims=True)
    forward = steps / length
    left = np.cross(points, forward)
    east = np.stack((-np.sin(lon), np.cos(lon), np.zeros_like(lon)), axis=1)
    north = np.cross(points, east)
    table = np.concatenate(
        (points, left, forward / length, (forward * east).sum(1)[:, None], (forward * north).sum(1)[:, None]), axis=1
    )
    path = torch.from_numpy(table.astype(np.float32)).to(xyz.device)
    nearest = (xyz @ path[:, :3].T).argmax(dim=-1)
    here = path[nearest]
    across = EARTH_RADIUS_M * (xyz * here[..., 3:6]).sum(-1)
    along = (nearest + (xyz * here[..., 6:9]).sum(-1)) / (POINTS - 1)
    return along.clamp(-1, 2), across, (here[..., 9], here[..., 10])


def draw_rivers(rng: np.random.Generator, mean: float, summer: float, grid: Grid) -> list[River]:
    """Draw the rivers of one sample, and on average 0.4 times as many filaments too short or too weak to count."""
    weights = np.array([share * (1 - 0.35 * sign * summer) for sign, _, share in OCEANS])
    rivers = [_draw(rng, weights, grid, short=False) for _ in range(rng.poisson(mean))]
    return rivers + [_draw(rng, weights, grid, short=True) for _ in range(rng.poisson(0.4 * mean))]


def _draw(
    rng: np.random.Generator, weights: np.ndarray[tuple[int], np.dtype[np.float64]], grid: Grid, short: bool
) -> River:
    sign, lons, _ = OCEANS[rng.choice(len(OCEANS), p=weights / weights.sum())]
    width = max(rng.uniform(200e3, 330e3), 1.05 * grid.spacing_degrees * 111.2e3)
    moisture = rng.uniform(12, 22)
    if short:
        start, delta_lat, delta_lon = rng.uniform(24, 42), rng.uniform(3, 7), rng.uniform(5, 10)
    else:
        start, delta_lat, delta_lon = rng.uniform(18, 27), rng.uniform(20, 33), rng.uniform(32, 72)
    return River(
        lat=float(sign * start),
        lon=rng.uniform(*lons) + (rng.uniform(0, 40) if short else 0),
        delta_lat=delta_lat,
        delta_lon=delta_lon,
        meander=rng.normal(0, 2.4),
        half_width_m=width,
        jet=rng.uniform(12, 22),
        moisture=moisture,
        rain_mm_per_day=rng.uniform(15, 50),
    )
