"""Draws the pictures of a simulated climate sample: ``python docs/pictures/make_deepcam.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from apps.deepcam.config import CHANNELS, Config
from apps.deepcam.detector import cyclone_centres, vapour_transport
from apps.deepcam.grid import CPU, Grid, global_grid
from apps.deepcam.simulate import sample_name, simulate_sample

Array = npt.NDArray[np.float32]

FOLDER = Path(__file__).parent
INDEX = 49
CYCLONE, RIVER = "#e8112d", "#00e5ff"


def main() -> None:
    """Write both pictures beside this file."""
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left"})
    config = Config()
    sample, labels, _ = simulate_sample(config, "train", INDEX)
    grid = global_grid(config.data.height, config.data.width, CPU)
    draw_globe(sample, labels, grid)
    draw_events(sample, labels, grid)


def field(sample: Array, name: str) -> Array:
    """One variable of a sample, by name."""
    return sample[..., CHANNELS.index(name)]


def draw_globe(sample: Array, labels: Array, grid: Grid) -> None:
    """Moisture, pressure with wind, and vapour transport of the whole globe, with the labels' outlines."""
    figure, axes = plt.subplots(3, 1, figsize=(8.6, 12.6), sharex=True, sharey=True, layout="constrained")
    pressure = field(sample, "PSL") / 100
    panels: list[tuple[npt.NDArray[Any], str, str, dict[str, Any]]] = [
        (field(sample, "TMQ"), "Column water vapour TMQ", "kg m$^{-2}$", {"cmap": "YlGnBu_r", "vmin": 0, "vmax": 70}),
        (
            pressure,
            "Sea level pressure PSL, wind at the lowest level",
            "hPa",
            {"cmap": "RdYlBu_r", "vmin": 968, "vmax": 1042},
        ),
        (
            vapour_transport(sample) * 1e3,
            "Vapour transport |V850| QREFHT",
            "g kg$^{-1}$ m s$^{-1}$",
            {"cmap": "inferno", "vmin": 0, "vmax": 400},
        ),
    ]
    for axis, (values, title, unit, style), letter in zip(axes, panels, "abc", strict=True):
        image = axis.imshow(values, extent=(0, 360, -90, 90), origin="lower", interpolation="none", **style)
        axis.set_title(f"({letter}) {title}")
        decorate(axis, labels, grid, "0.25" if letter == "b" else "0.75")
        bar = figure.colorbar(
            image, ax=axis, shrink=0.82, pad=0.015, aspect=24, extend="both" if letter == "b" else "max"
        )
        bar.set_label(unit)
    add_wind(axes[1], sample, grid, step=36, scale=420)
    handles = [
        Line2D([], [], color=color, lw=1.5, path_effects=[withStroke(linewidth=2.6, foreground="black")])
        for color in (CYCLONE, RIVER)
    ]
    axes[0].legend(
        handles,
        ["tropical cyclone", "atmospheric river"],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=2,
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.1,
    )
    name, moment = sample_name("train", INDEX)
    figure.suptitle(
        f"Simulated climate sample {name.removeprefix('data-')}, {moment.hour:02.0f} UTC, 768 x 1152", fontsize=11
    )
    figure.savefig(FOLDER / "deepcam-globe.png", dpi=110)
    plt.close(figure)


def decorate(axis: Axes, labels: Array, grid: Grid, coast: str) -> None:
    """Coastlines, outlines of the labels, and axes in degrees."""
    lon, lat = np.degrees(grid.lon.numpy()[0]), np.degrees(grid.lat.numpy()[:, 0])
    axis.contour(lon, lat, grid.land.numpy(), [0.5], colors=coast, linewidths=0.45)
    outline(axis, lon, lat, labels)
    axis.set_xticks(range(0, 361, 60), ["0°", "60°E", "120°E", "180°", "120°W", "60°W", "0°"])
    axis.set_yticks(range(-60, 61, 30), ["60°S", "30°S", "0°", "30°N", "60°N"])
    axis.tick_params(length=2.5)


def outline(axis: Axes, lon: npt.NDArray[Any], lat: npt.NDArray[Any], labels: Array) -> None:
    """Outlines of both classes, dark-edged so that they show on any colour."""
    for label, color in ((2, RIVER), (1, CYCLONE)):
        if (labels == label).any():
            lines = axis.contour(lon, lat, labels == label, [0.5], colors=color, linewidths=1.2)
            lines.set(path_effects=[withStroke(linewidth=2.2, foreground="black")])


def add_wind(axis: Axes, sample: Array, grid: Grid, step: int, scale: float) -> None:
    """Arrows of the wind at the lowest level, every ``step`` cells."""
    rows, columns = slice(step // 2, None, step), slice(step // 2, None, step)
    lon, lat = np.degrees(grid.lon.numpy()[0]), np.degrees(grid.lat.numpy()[:, 0])
    arrows = axis.quiver(
        lon[columns],
        lat[rows],
        field(sample, "UBOT")[rows, columns],
        field(sample, "VBOT")[rows, columns],
        scale=scale,
        width=0.0016,
        color="0.1",
    )
    axis.quiverkey(arrows, 0.90, 1.03, 15, "15 m s$^{-1}$", labelpos="E", fontproperties={"size": 8})


def draw_events(sample: Array, labels: Array, grid: Grid) -> None:
    """The deepest cyclone and the surroundings of the largest river: what the detector saw."""
    figure, axes = plt.subplots(2, 2, figsize=(9.2, 7.4), layout="constrained")
    pressure = field(sample, "PSL")
    centre = min(cyclone_centres(sample), key=lambda place: pressure[place])
    storm = crop(sample, labels, grid, centre, 10, 12)
    draw_event(axes[0, 0], storm, "T500", "warm core: T500 and PSL", "K", {"cmap": "magma"}, arrows=4)
    rain = {"cmap": "GnBu", "norm": LogNorm(1, 500)}
    draw_event(axes[0, 1], storm, "PRECT", "rain: PRECT and PSL", "mm day$^{-1}$", rain, arrows=0)
    rows, columns = np.nonzero(labels == 2)
    middle = (int(np.median(rows)), int(np.median(columns)))
    river = crop(sample, labels, grid, largest_river(labels) or middle, 24, 34)
    draw_event(axes[1, 0], river, "TMQ", "moisture: TMQ and PSL", "kg m$^{-2}$", {"cmap": "YlGnBu_r"}, arrows=12)
    draw_event(axes[1, 1], river, "wind", "wind at 850 hPa and PSL", "m s$^{-1}$", {"cmap": "viridis"}, arrows=0)
    for axis, letter, kind in zip(axes.flat, "abcd", ("Cyclone",) * 2 + ("River",) * 2, strict=True):
        axis.set_title(f"({letter}) {kind}, {axis.get_title(loc='left')}")
    figure.savefig(FOLDER / "deepcam-events.png", dpi=130)
    plt.close(figure)


def largest_river(labels: Array) -> tuple[int, int] | None:
    """Middle of the largest connected river."""
    from scipy import ndimage

    regions, count = ndimage.label(labels == 2)
    if not count:
        return None
    size = np.bincount(regions.ravel())
    size[0] = 0
    row, column = ndimage.center_of_mass(regions == size.argmax())
    return int(row), int(column)


def crop(
    sample: Array, labels: Array, grid: Grid, centre: tuple[int, int], half_height: float, half_width: float
) -> dict[str, Any]:
    """The fields in a box around a cell, half its size in degrees; columns may wrap around the globe."""
    tall, wide = int(half_height * grid.height / 180), int(half_width * grid.width / 360)
    rows = np.arange(max(0, centre[0] - tall), min(grid.height, centre[0] + tall))
    columns = np.arange(centre[1] - wide, centre[1] + wide)
    block = sample[rows][:, columns % grid.width]
    fields = {name: block[..., i] for i, name in enumerate(CHANNELS)}
    fields["PRECT"] = fields["PRECT"] * 8.64e7
    fields["wind"] = np.hypot(fields["U850"], fields["V850"])
    place = {"lat": (rows + 0.5) * 180 / grid.height - 90, "lon": (columns + 0.5) * 360 / grid.width}
    land = grid.land.numpy()[rows][:, columns % grid.width]
    return fields | place | {"labels": labels[rows][:, columns % grid.width], "land": land}


def draw_event(
    axis: Axes, box: dict[str, Any], name: str, title: str, unit: str, style: dict[str, Any], arrows: int
) -> None:
    """One panel: a field in colour, pressure as contours, the label's outline, and wind arrows where wanted."""
    lat, lon = box["lat"], box["lon"]
    image = axis.pcolormesh(lon, lat, box[name], shading="nearest", rasterized=True, **style)
    axis.figure.colorbar(image, ax=axis, shrink=0.9, pad=0.02, label=unit)
    levels = np.arange(900, 1060, 4 if box["PSL"].min() > 97500 else 8)
    lines = axis.contour(lon, lat, box["PSL"] / 100, levels, colors="0.55", linewidths=0.7)
    axis.clabel(lines, fontsize=6.5, fmt="%d")
    axis.contour(lon, lat, box["land"], [0.5], colors="0.8", linewidths=0.8)
    outline(axis, lon, lat, box["labels"])
    if arrows:
        thin = (slice(arrows // 2, None, arrows),) * 2
        axis.quiver(lon[thin[1]], lat[thin[0]], box["U850"][thin], box["V850"][thin], color="w", width=0.0028)
    axis.set_title(title)
    axis.set_aspect(1 / np.cos(np.radians(lat.mean())))
    axis.set_xlabel("longitude (°E)")
    axis.set_ylabel("latitude (°N)")


if __name__ == "__main__":
    main()
