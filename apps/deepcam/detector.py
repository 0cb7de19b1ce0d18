"""Labels from the fields alone: thresholds and connected regions for cyclones and rivers, as in TECA.

Follows the method of the published labels (Prabhat et al. 2021, ClimateNet; TECA; mlcommons/hpc): cyclones are lows
with a warm core and strong winds, whose pixels exceed thresholds of moisture, wind or rain near the centre; rivers are
long, narrow regions of strong vapour transport outside the deep tropics. Cyclones override rivers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from apps.deepcam.config import CHANNELS
from apps.deepcam.grid import CPU, global_grid

Array = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

BACKGROUND, CYCLONE, RIVER = 0, 1, 2
KM_PER_DEGREE = 111.2


@dataclass(frozen=True)
class Thresholds:
    """What counts as an event. Lengths of cyclones grow with the grid's ``storm_scale``, those of rivers do not."""

    cyclone_latitude: float = 40.0
    """Centres lie within this latitude."""
    depth_pa: float = 600.0
    """The centre is this much below the mean of a box of 6.6 degrees around it."""
    warm_core_k: float = 1.0
    """The mean of T200 and T500 at the centre is this much above that of the box."""
    peak_wind: float = 17.0
    """Strongest wind at 850 hPa near the centre, in m/s (tropical storm)."""
    pixel_wind: float = 18.5
    """A pixel of the storm has this wind at 850 hPa,"""
    pixel_rain: float = 1.4e-6
    """or this rain in m/s,"""
    pixel_moisture: float = 70.0
    """or this column water in kg/m^2."""
    transport: float = 0.140
    """Vapour transport |V850| QREFHT of a river at 30 degrees, in m/s kg/kg; see ``transport_threshold``."""
    river_length_km: float = 2000.0
    """Rivers are at least this long,"""
    river_aspect: float = 2.0
    """this many times longer than wide,"""
    river_coherence: float = 0.8
    """with a net transport that is at least this share of the mean of its magnitude: a flow, not a vortex,"""
    river_latitude: float = 18.0
    """and lie outside this latitude."""


PUBLISHED = Thresholds()
STRICT = Thresholds(
    depth_pa=900.0, warm_core_k=1.5, peak_wind=21.0, pixel_wind=20.0, pixel_rain=1.2e-6, pixel_moisture=70.0,
    transport=0.175,
)  # fmt: skip

TMQ, U850, V850, QREFHT, PSL, T200, T500, PRECT = (
    CHANNELS.index(name) for name in ("TMQ", "U850", "V850", "QREFHT", "PSL", "T200", "T500", "PRECT")
)


def detect(sample: Array, thresholds: Thresholds = PUBLISHED) -> Array:
    """Return classes (height, width) float32 of a sample (height, width, 16): 0 background, 1 cyclone, 2 river."""
    cyclones = find_cyclones(sample, thresholds)
    labels = np.where(find_rivers(sample, cyclones, thresholds), np.float32(RIVER), np.float32(BACKGROUND))
    labels[cyclones] = CYCLONE
    return labels


@dataclass(frozen=True, eq=False)
class _Cells:
    """Geometry of the cells: latitudes (height,) in degrees, unit vectors (height, width, 3), areas in km^2."""

    lat: Array
    xyz: Array
    area: Array
    storm_scale: float


@cache
def _cells(height: int, width: int) -> _Cells:
    grid = global_grid(height, width, CPU)
    lat = np.degrees(grid.lat.numpy()[:, 0])
    area = KM_PER_DEGREE**2 * (180 / height) * (360 / width) * np.cos(np.radians(lat))
    return _Cells(lat, grid.xyz.numpy(), area.astype(np.float32), grid.storm_scale)


def _box(degrees: float, height: int, width: int) -> tuple[int, int]:
    """Odd numbers of rows and columns, at least three, that reach ``degrees`` from their middle."""
    return (
        2 * min(max(1, round(degrees * height / 180)), height // 2 - 1) + 1,
        2 * min(max(1, round(degrees * width / 360)), width // 2 - 1) + 1,
    )


def cyclone_centres(sample: Array, thresholds: Thresholds = PUBLISHED) -> list[tuple[int, int]]:
    """Rows and columns of the centres of tropical cyclones: deep, warm, windy lows that rotate the right way."""
    height, width = sample.shape[:2]
    cells = _cells(height, width)
    scale = cells.storm_scale
    psl = np.ascontiguousarray(sample[..., PSL])
    edges = ("nearest", "wrap")
    lowest = ndimage.minimum_filter(psl, size=_box(3.0 * scale, height, width), mode=edges)
    mean = ndimage.uniform_filter(psl, size=_box(6.6 * scale, height, width), mode=edges)
    tropics = (np.abs(cells.lat) <= thresholds.cyclone_latitude)[:, None]
    candidates = np.argwhere((psl == lowest) & (mean - psl >= thresholds.depth_pa) & tropics)
    return [(int(row), int(column)) for row, column in candidates if _is_cyclone(sample, row, column, thresholds)]


def _window(sample: Array, row: int, column: int, box: tuple[int, int]) -> tuple[slice, npt.NDArray[np.intp]]:
    """Rows and columns (which may wrap) of the box around a cell."""
    rows = slice(max(0, row - box[0] // 2), min(sample.shape[0], row + box[0] // 2 + 1))
    return rows, np.arange(column - box[1] // 2, column + box[1] // 2 + 1) % sample.shape[1]


def _is_cyclone(sample: Array, row: int, column: int, thresholds: Thresholds) -> bool:
    height, width = sample.shape[:2]
    cells = _cells(height, width)
    wide, near, core = (_box(size * cells.storm_scale, height, width) for size in (6.6, 2.5, 0.9))
    means = []
    for box in (core, wide):
        rows, columns = _window(sample, row, column, box)
        block = sample[rows][:, columns]
        means.append(float(block[..., [T200, T500]].mean()))
    rows, columns = _window(sample, row, column, near)
    block = sample[rows][:, columns]
    u, v = block[..., U850], block[..., V850]
    step = 180 / height * KM_PER_DEGREE
    east_step = 360 / width * KM_PER_DEGREE * np.cos(np.radians(cells.lat[row]))
    vorticity = float((np.gradient(v, east_step, axis=1) - np.gradient(u, step, axis=0)).mean())
    return (
        means[0] - means[1] >= thresholds.warm_core_k
        and float(np.hypot(u, v).max()) >= thresholds.peak_wind
        and vorticity * float(np.sign(cells.lat[row])) > 0
    )


def find_cyclones(sample: Array, thresholds: Thresholds = PUBLISHED) -> Mask:
    """Pixels (height, width) of tropical cyclones: strong wind, rain or moisture, connected to a centre."""
    height, width = sample.shape[:2]
    cells = _cells(height, width)
    mask = np.zeros((height, width), dtype=bool)
    radius = np.radians(5.5 * cells.storm_scale)
    core = np.radians(max(1.0 * cells.storm_scale, 1.5 * 180 / height))
    for row, column in cyclone_centres(sample, thresholds):
        reach = 5.5 * cells.storm_scale
        box = (_box(reach, height, width)[0], _box(reach / np.cos(np.radians(cells.lat[row])), height, width)[1])
        rows, columns = _window(sample, row, column, box)
        block = sample[rows][:, columns]
        distance = np.arccos(np.clip(cells.xyz[rows][:, columns] @ cells.xyz[row, column], -1, 1))
        strong = np.hypot(block[..., U850], block[..., V850]) >= thresholds.pixel_wind
        strong |= block[..., PRECT] >= thresholds.pixel_rain
        strong |= block[..., TMQ] >= thresholds.pixel_moisture
        regions, _ = ndimage.label(strong & (distance <= radius), structure=np.ones((3, 3)))
        central = np.unique(regions[distance <= core])
        # The eye of a storm is calm and belongs to it.
        storm = ndimage.binary_fill_holes(np.isin(regions, central[central > 0]))
        where = np.nonzero(storm)
        mask[rows.start + where[0], columns[where[1]]] = True
    return mask


def vapour_transport(sample: Array) -> Array:
    """|V850| QREFHT (height, width) in m/s kg/kg, a stand-in for integrated vapour transport in the sixteen fields."""
    return np.asarray(np.hypot(sample[..., U850], sample[..., V850]) * sample[..., QREFHT])


def transport_threshold(lat: Array, thresholds: Thresholds = PUBLISHED) -> Array:
    """The threshold by latitude in degrees: it falls towards the poles, like the amount of water that air can hold."""
    shape = (0.30 + 0.70 * np.cos(np.radians(lat)) ** 2) / (0.30 + 0.70 * 0.75)
    return np.asarray(thresholds.transport * shape, dtype=np.float32)


def find_rivers(sample: Array, cyclones: Mask, thresholds: Thresholds = PUBLISHED) -> Mask:
    """Pixels (height, width) of long, narrow regions of strong vapour transport that are not cyclones."""
    cells = _cells(*sample.shape[:2])
    outside = np.abs(cells.lat) >= thresholds.river_latitude
    transport = vapour_transport(sample)
    strong = transport >= transport_threshold(cells.lat, thresholds)[:, None]
    strong &= outside[:, None] & ~cyclones
    regions = _label_around_globe(strong)
    length, width = _extent_km(regions, cells)
    keep = (length >= thresholds.river_length_km) & (length >= thresholds.river_aspect * width)
    keep &= _coherence(regions, sample, transport, len(keep)) >= thresholds.river_coherence
    keep[0] = False
    return np.asarray(keep[regions])


def _label_around_globe(mask: Mask) -> npt.NDArray[np.intp]:
    """Connected regions (including diagonals), numbered from 1, joined where the last column meets the first."""
    regions, count = ndimage.label(mask, structure=np.ones((3, 3)))
    names = np.arange(count + 1)
    west, east = regions[:, 0], regions[:, -1]
    for shift in (-1, 0, 1):
        inner = slice(max(0, -shift), len(west) - max(0, shift))
        other = slice(max(0, shift), len(west) - max(0, -shift))
        for a, b in zip(west[inner], east[other], strict=True):
            if a and b and names[a] != names[b]:
                names[names == names[b]] = names[a]
    return np.asarray(names[regions])


def _coherence(regions: npt.NDArray[np.intp], sample: Array, transport: Array, count: int) -> npt.NDArray[np.float64]:
    """Magnitude of each region's summed transport over its sum of magnitudes (Guan and Waliser 2015)."""
    rows, columns = np.nonzero(regions)
    region = regions[rows, columns]
    q = sample[rows, columns, QREFHT]
    east = np.bincount(region, q * sample[rows, columns, U850], count)
    north = np.bincount(region, q * sample[rows, columns, V850], count)
    return np.asarray(np.hypot(east, north) / np.maximum(np.bincount(region, transport[rows, columns], count), 1e-9))


def _extent_km(regions: npt.NDArray[np.intp], cells: _Cells) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Length and width of each region: those of a bar with the same area and the same spread along its main axis."""
    rows, columns = np.nonzero(regions)
    region = regions[rows, columns]
    count = int(region.max(initial=0)) + 1
    area = cells.area[rows].astype(float)
    total = np.maximum(np.bincount(region, area, count), 1e-9)
    xyz = cells.xyz[rows, columns].astype(float) * (180 / np.pi * KM_PER_DEGREE)
    mean = np.stack([np.bincount(region, area * xyz[:, i], count) for i in range(3)], axis=1) / total[:, None]
    offset = xyz - mean[region]
    spread = np.empty((count, 3, 3))
    for i in range(3):
        for j in range(i + 1):
            spread[:, i, j] = spread[:, j, i] = np.bincount(region, area * offset[:, i] * offset[:, j], count) / total
    length = np.sqrt(12 * np.maximum(np.linalg.eigvalsh(spread)[:, -1], 1e-9))
    return length, total / length
