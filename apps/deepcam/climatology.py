"""The mean state of the atmosphere by latitude, longitude, season and hour, and the weather around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from apps.deepcam.fields import AIR_DENSITY, GAS_CONSTANT, MM_PER_DAY, Fields, saturation_humidity, surface_pressure
from apps.deepcam.grid import Grid, gradient
from apps.deepcam.weather import synthesize


@dataclass(frozen=True)
class Moment:
    """The time of a sample: ``day`` of a 365-day year (0 is 1 January), ``hour`` in universal time."""

    day: int
    hour: float

    @property
    def summer(self) -> float:
        """1 in northern midsummer (late July, with the lag of the oceans), -1 in northern midwinter."""
        return math.cos(2 * math.pi * (self.day - 205) / 365)


def _bump(x: Tensor, centre: float, width: float) -> Tensor:
    return torch.exp(-(((x - centre) / width) ** 2))


def storm_track(lat: Tensor, summer: float) -> Tensor:
    """Strength of mid-latitude weather by latitude in degrees: 1 in the storm tracks, more in winter."""
    north = _bump(lat, 46 + 4 * summer, 16) * (1 - 0.3 * summer)
    return north + _bump(lat, -49 + 2 * summer, 15) * (1 + 0.1 * summer)


def surface_temperature(grid: Grid, moment: Moment) -> Tensor:
    """Skin temperature in K: the observed zonal profile at sea (Neale and Hoskins 2000), continents over land."""
    lat, lon, summer = grid.lat.rad2deg(), grid.lon.rad2deg(), moment.summer
    squared = (1.5 * (grid.lat - math.radians(5 * summer))).clamp(-math.pi / 2, math.pi / 2).sin() ** 2
    sea = 273.15 + 13.7 * (2 - squared - squared**2)
    sea = sea + 1.5 * _bump(lon, 150, 45) * _bump(lat, 0, 15) - 2.5 * _bump(lon, 262, 25) * _bump(lat, 0, 8)
    winter = (1 - summer * grid.lat.sign()) / 2
    sea = sea - 27 * winter * torch.sigmoid((lat.abs() - 69) / 3)
    sine = grid.lat.sin()
    local_hour = moment.hour + lon / 15
    diurnal = 5 * grid.lat.cos() * torch.cos((local_hour - 14) * (math.pi / 12))
    land = 303 - 46 * sine**2 + 19 * sine * summer + diurnal - 0.0065 * grid.surface
    return sea + grid.land * (land - sea)


def sea_level_pressure(grid: Grid, moment: Moment) -> Tensor:
    """Mean pressure in Pa: equatorial trough, subtropical highs at sea, polar lows, continental highs in winter."""
    lat, summer = grid.lat.rad2deg(), moment.summer
    sea = 1 - grid.continent
    mean = 1011 - 25 * _bump(lat, -66, 12) - 6 * (1 - 0.6 * summer) * _bump(lat, 61, 11) * (0.5 + sea)
    mean = mean + _bump(lat, 33 + 3 * summer, 11) * (3 + 6 * sea) + _bump(lat, -31 + 3 * summer, 11) * (4 + 5 * sea)
    return 100 * (mean - 12 * summer * grid.continent * _bump(lat, 45, 17) + 4 * _bump(lat, 90, 15))


def mean_state(grid: Grid, moment: Moment) -> tuple[Fields, Tensor]:
    """Climatological fields without moisture, and relative humidity (2, height, width) near the ground and aloft."""
    lat, lon, summer = grid.lat.rad2deg(), grid.lon.rad2deg(), moment.summer
    equator = 7.0 * summer
    ts = surface_temperature(grid, moment)
    trefht = ts - 1.0
    psl = sea_level_pressure(grid, moment)
    u850 = -7.5 * _bump(lat, equator + 12, 9) - 7 * _bump(lat, equator - 12, 9)
    u850 = u850 + 9 * (1 - 0.4 * summer) * _bump(lat, 42 + 4 * summer, 12) + 13 * _bump(lat, -49 + 2 * summer, 12)
    u850 = u850 - 2 * _bump(lat.abs(), 78, 8) + 12 * max(summer, 0.0) * _bump(lat, 12, 7) * _bump(lon, 70, 30)
    offset = (lat - equator) / 12
    vbot = (-2.4 * offset * torch.exp(0.5 - 0.5 * offset**2)).expand_as(psl)
    drag = 0.78 - 0.35 * grid.land
    profile = (grid.lat - math.radians(5 * summer)).sin() ** 2
    t500 = (268.5 - 33 * profile**1.2).expand_as(psl)
    t850 = (290.5 - 38 * profile**1.1).expand_as(psl)
    t200 = (218.5 - 2 * _bump(lat.abs(), 35, 12) + (3 + 7 * summer * grid.lat.sign()) * grid.lat.sin() ** 4).expand_as(
        psl
    )
    desert = _bump(lat.abs(), 23, 9)
    inland = 0.12 + 0.38 * desert
    humidity = torch.stack((0.80 - grid.land * inland, 0.80 - grid.continent * inland))
    rain = 1.2 + 7.5 * _bump(lat, equator, 9) + 2.5 * storm_track(lat, summer)
    prect = rain * (1 - 0.8 * grid.land * desert) * MM_PER_DAY
    zero = torch.zeros_like(psl)
    fields = Fields(
        zero, u850 + zero, 0.4 * vbot, drag * u850, drag * vbot, zero, psl, t850, t500, t200, prect, ts, trefht
    )
    return fields, humidity


def add_weather(fields: Fields, humidity: Tensor, grid: Grid, moment: Moment, rng: np.random.Generator) -> None:
    """Add weather to the mean state, in place: geostrophic eddies with their temperatures, moisture and rain."""
    lat = grid.lat.rad2deg()
    low, high, moisture, warmth, rain, dryness = synthesize(rng, ("eddy", "eddy", *("tracer",) * 4), grid)
    track = storm_track(lat, moment.summer)
    low *= (2.5 + 5.0 * track) * (1 - 0.4 * grid.continent)
    high = 1.1 * low.roll(-round(15 / 360 * grid.width), dims=-1) + high * (3 + 6 * track)
    stream_u, stream_v = gradient(low, grid)
    eddy_u, eddy_v = -stream_v, stream_u
    poleward = eddy_v * torch.tanh(lat / 15)
    thickness = grid.coriolis * (high - low) / (GAS_CONSTANT * math.log(5))
    warm = 0.22 * poleward + 1.2 * thickness
    fields.psl = fields.psl + AIR_DENSITY * grid.coriolis * low
    fields.u850, fields.v850 = fields.u850 + eddy_u, fields.v850 + eddy_v
    turn = math.radians(18) * torch.tanh(lat / 10)
    drag = 0.78 - 0.35 * grid.land
    fields.ubot = fields.ubot + drag * (eddy_u * turn.cos() - eddy_v * turn.sin())
    fields.vbot = fields.vbot + drag * (eddy_v * turn.cos() + eddy_u * turn.sin())
    fields.t850 = fields.t850 + warm + 0.7 * warmth
    fields.t500 = fields.t500 + warm + 0.5 * warmth
    fields.t200 = fields.t200 - 0.7 * thickness + 0.6 * dryness
    near_surface = (warm + 0.9 * warmth) * (0.35 + 0.65 * grid.land)
    fields.trefht = fields.trefht + near_surface
    fields.ts = fields.ts + (warm + warmth) * (0.08 + 0.7 * grid.land)
    wetness = 0.75 * moisture + 0.06 * poleward - 0.3 * dryness
    humidity = (humidity + 0.06 * wetness).clamp(0.05, 0.98)
    ps = surface_pressure(fields.psl, fields.trefht, grid)
    fields.q, aloft = humidity * saturation_humidity(fields.trefht, ps)
    dry_belt = 1 - 0.25 * _bump((lat - 7 * moment.summer).abs(), 21, 9)
    fields.tmq = aloft * 2450 * dry_belt * (ps / 1e5) * torch.exp(0.26 * wetness)
    fields.prect = fields.prect * torch.exp(1.3 * rain + 0.9 * wetness - 1.25)


def atmosphere(grid: Grid, moment: Moment, rng: np.random.Generator) -> Fields:
    """Return a state of the atmosphere without any event."""
    fields, humidity = mean_state(grid, moment)
    add_weather(fields, humidity, grid, moment, rng)
    return fields
