"""The global latitude-longitude grid: coordinates, land, mountains, and how much storms must be enlarged on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import Tensor

from apps.deepcam.geography import render

CPU = torch.device("cpu")
EARTH_RADIUS_M = 6.371e6
EARTH_ROTATION_PER_S = 7.292e-5
FINEST_RESOLVED_DEGREES = 0.7
"""Rows at most this far apart resolve storms of natural size."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Cell centres of a global grid; row 0 is the southernmost, column 0 the first east of Greenwich.

    ``lat`` (height, 1) and ``lon`` (1, width) are in radians, ``xyz`` (height, width, 3) unit vectors, ``coriolis``
    (height, 1) in 1/s, ``land`` (height, width) the land fraction, ``continent`` the same smoothed over some ten
    degrees, ``surface`` the height of the ground in metres.
    """

    height: int
    width: int
    lat: Tensor
    lon: Tensor
    xyz: Tensor
    coriolis: Tensor
    land: Tensor
    continent: Tensor
    surface: Tensor

    @property
    def spacing_degrees(self) -> float:
        """Distance between rows in degrees."""
        return 180.0 / self.height

    @property
    def storm_scale(self) -> float:
        """Linear factor by which storms grow on a coarse grid, so that a few cells resolve them."""
        return max(1.0, self.spacing_degrees / FINEST_RESOLVED_DEGREES)

    @property
    def device(self) -> torch.device:
        """The device that holds the tensors."""
        return self.lat.device


@cache
def global_grid(height: int, width: int, device: torch.device) -> Grid:
    """Return the grid of ``height`` x ``width`` cells; it is built once per process."""
    lat = (torch.arange(height, dtype=torch.float64, device="cpu") + 0.5) * (math.pi / height) - math.pi / 2
    lon = (torch.arange(width, dtype=torch.float64, device="cpu") + 0.5) * (2 * math.pi / width)
    lat, lon = lat[:, None], lon[None, :]
    xyz = torch.stack((lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin().expand(height, width)), dim=-1)
    land, surface = render()
    continent = gaussian_filter(land, sigma=(12, 16), mode=("nearest", "wrap"))
    fields = [_resample(field, height, width) for field in (land, continent, surface)]
    coriolis = 2 * EARTH_ROTATION_PER_S * lat.sin()
    tensors = [part.to(device, torch.float32) for part in (lat, lon, xyz, coriolis, *fields)]
    return Grid(height, width, *tensors)


def _resample(field: np.ndarray[tuple[int, ...], np.dtype[np.float32]], height: int, width: int) -> Tensor:
    """Resample a field to another grid: cell means if that is coarser, linear interpolation if it is finer."""
    source = torch.from_numpy(field)[None, None]
    if height <= field.shape[0] and width <= field.shape[1]:
        return F.interpolate(source, size=(height, width), mode="area")[0, 0]
    return F.interpolate(source, size=(height, width), mode="bilinear", align_corners=False)[0, 0]


def gradient(field: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Eastward and northward derivatives of ``field`` (..., height, width) per metre, by central differences."""
    step = math.pi / grid.height * EARTH_RADIUS_M
    (north,) = torch.gradient(field, spacing=step, dim=-2)
    east_step = 2 * math.pi / grid.width * EARTH_RADIUS_M * grid.lat.cos()
    east = (field.roll(-1, dims=-1) - field.roll(1, dims=-1)) / (2 * east_step)
    return east, north


@dataclass(frozen=True, eq=False)
class Patch:
    """The part of the grid around an event: a block of rows, and columns that may wrap around the globe."""

    rows: slice
    columns: Tensor

    def read(self, field: Tensor) -> Tensor:
        """Return a copy of the block of ``field`` (height, width, ...)."""
        return field[self.rows].index_select(1, self.columns)

    def add(self, field: Tensor, change: Tensor) -> None:
        """Add ``change`` to the block of ``field`` (height, width), in place."""
        field[self.rows].index_add_(1, self.columns, change)


def patch_around(grid: Grid, south: float, north: float, west: float, east: float) -> Patch:
    """The block between two latitudes and two longitudes in degrees; ``west`` may be below 0, ``east`` above 360."""
    first = max(0, math.floor((south + 90) * grid.height / 180))
    last = min(grid.height, math.ceil((north + 90) * grid.height / 180))
    start = math.floor(west * grid.width / 360)
    count = min(grid.width, math.ceil((east - west) * grid.width / 360) + 1)
    return Patch(slice(first, last), (torch.arange(count, device=grid.device) + start) % grid.width)
