"""Where tropical cyclones form and how strong they are, and lows that resemble them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from apps.deepcam.grid import Grid
from apps.deepcam.vortices import Vortex

# Latitudes and longitudes in degrees, relative number of storms (IBTrACS, rounded), day of the season's peak.
BASINS = (
    ((8, 30), (122, 178), 0.30, 235),
    ((9, 22), (205, 258), 0.19, 235),
    ((10, 32), (285, 335), 0.14, 250),
    ((7, 20), (62, 94), 0.08, 300),
    ((-24, -8), (45, 108), 0.17, 30),
    ((-25, -9), (145, 205), 0.12, 40),
)


def season_weight(day: int, peak: int) -> float:
    """Relative activity of a basin on a day of the year: 1 at the peak, 0.12 half a year away."""
    return float(0.12 + 0.88 * max(0.0, math.cos(2 * math.pi * (day - peak) / 365)) ** 0.8)


@cache
def yearly_activity() -> float:
    """Mean over the year of the weighted activity of all basins."""
    return float(sum(share * season_weight(day, peak) for _, _, share, peak in BASINS for day in range(365)) / 365)


def draw_cyclones(rng: np.random.Generator, mean: float, day: int, grid: Grid) -> list[Vortex]:
    """Draw the tropical cyclones of one sample; averaged over the year, a fine grid has ``mean`` per sample.

    On a coarse grid storms are larger by ``grid.storm_scale`` and fewer by its square, so that they are resolved and
    cover the same share of the globe.
    """
    weights = np.array([share * season_weight(day, peak) for _, _, share, peak in BASINS])
    count = rng.poisson(mean / grid.storm_scale**2 * weights.sum() / yearly_activity())
    storms = []
    for basin in rng.choice(len(BASINS), size=count, p=weights / weights.sum()):
        (south, north), (west, east), _, _ = BASINS[basin]
        lat, lon = _over_sea(rng, (south, north), (west, east), grid)
        depth = float(np.clip(rng.lognormal(math.log(3100), 0.5), 800, 9000))
        storms.append(_cyclone(rng, lat, lon, depth, grid))
    return storms


def _cyclone(rng: np.random.Generator, lat: float, lon: float, depth: float, grid: Grid) -> Vortex:
    radius = resolved_radius(float(np.clip(rng.normal(50e3, 10e3), 30e3, 80e3)), grid)
    return Vortex(
        lat=lat,
        lon=lon,
        depth_pa=depth,
        radius_m=radius,
        shape=rng.uniform(1.2, 1.7),
        core_k=depth / 900 * rng.uniform(0.9, 1.3) + 1.2,
        moisture=rng.uniform(14, 24),
        rain_mm_per_day=rng.uniform(120, 320) * (depth / 3400) ** 0.5,
        reach_m=8 * radius,
        spiral_phase=rng.uniform(0, 2 * math.pi),
    )


def resolved_radius(radius_m: float, grid: Grid) -> float:
    """Return ``radius_m`` enlarged for a coarse grid, and at least 0.75 of the distance between two rows."""
    return max(radius_m * grid.storm_scale, 0.75 * grid.spacing_degrees * 111.2e3)


def _over_sea(
    rng: np.random.Generator, lats: tuple[float, float], lons: tuple[float, float], grid: Grid
) -> tuple[float, float]:
    """A place in the box, at sea unless forty tries find none."""
    lat, lon = 0.0, 0.0
    for _ in range(40):
        lat, lon = rng.uniform(*lats), rng.uniform(*lons)
        row = int((lat + 90) / 180 * grid.height)
        if grid.land[row, int(lon % 360 / 360 * grid.width)] < 0.4:
            break
    return lat, lon


def draw_confusing_lows(rng: np.random.Generator, mean_cyclones: float, grid: Grid) -> list[Vortex]:
    """Draw lows that are not tropical cyclones: cold ones in mid-latitudes and subtropics, and weak moist ones."""
    lows = []
    for _ in range(rng.poisson(4.0)):
        depth = float(np.clip(rng.lognormal(math.log(2200), 0.4), 800, 5500))
        lat, lon = _over_sea(rng, (34, 62) if rng.uniform() < 0.5 else (-62, -34), (0, 360), grid)
        lows.append(
            Vortex(
                lat=lat,
                lon=lon,
                depth_pa=depth,
                radius_m=max(rng.uniform(250e3, 480e3), resolved_radius(0, grid)),
                shape=rng.uniform(1.0, 1.5),
                core_k=-rng.uniform(1.5, 5.0),
                moisture=rng.uniform(1, 6),
                rain_mm_per_day=rng.uniform(15, 50),
                reach_m=1.5e6,
                spiral_phase=rng.uniform(0, 2 * math.pi),
            )
        )
    for _ in range(rng.poisson(0.6 * mean_cyclones / grid.storm_scale**2)):
        cold = rng.uniform() < 0.6
        lat = float(rng.choice((-1, 1)) * (rng.uniform(18, 34) if cold else rng.uniform(7, 20)))
        low = _cyclone(rng, lat, rng.uniform(0, 360), rng.uniform(700, 2600) if cold else rng.uniform(250, 600), grid)
        core = -rng.uniform(1.0, 4.0) if cold else rng.uniform(-0.5, 0.3)
        lows.append(Vortex(**{**vars(low), "core_k": core, "rain_mm_per_day": low.rain_mm_per_day * 0.6}))
    return lows


def draw_moist_blobs(rng: np.random.Generator, grid: Grid) -> list[Vortex]:
    """Draw clusters of moisture and rain in the tropics without a vortex."""
    blobs = []
    for _ in range(rng.poisson(4.0 / grid.storm_scale)):
        blobs.append(
            Vortex(
                lat=rng.uniform(-18, 20),
                lon=rng.uniform(0, 360),
                depth_pa=0.0,
                radius_m=resolved_radius(rng.uniform(60e3, 110e3), grid),
                shape=1.3,
                core_k=rng.uniform(-0.3, 0.5),
                moisture=rng.uniform(10, 24),
                rain_mm_per_day=rng.uniform(60, 250),
                reach_m=resolved_radius(700e3, grid),
                spiral_phase=rng.uniform(0, 2 * math.pi),
            )
        )
    return blobs
