"""Plots and texts for the report of a DeepCAM run: maps with outlines, and the overlap of each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from apps.deepcam.config import CLASSES
from apps.deepcam.geography import render
from hpcbench.results import style, units
from hpcbench.results.plots import Figure, words
from hpcbench.results.records import Run, read_arrays, read_summary

ABOUT = (
    "A segmentation network reads global maps of the weather (moisture, winds, pressure, temperature) and marks, pixel "
    "by pixel, where tropical cyclones and atmospheric rivers are, so that extreme weather can be counted in climate "
    "simulations."
)
"""What the application is, for a reader who has never heard of it."""

NAMES = {"background": "background", "tropical_cyclone": "tropical cyclone", "atmospheric_river": "atmospheric river"}
COLORS = {"tropical_cyclone": style.VERMILLION, "atmospheric_river": style.BLUE}

LABELS = {
    "iou": "mean IoU per image, the target metric",
    **{f"iou_{name}": f"IoU of {label}" for name, label in NAMES.items()},
    **{f"iou_present_{name}": f"IoU of {label}, per image that holds one" for name, label in NAMES.items()},
    **{f"share_{name}": f"share of images with {label}" for name, label in NAMES.items()},
}
"""Metrics in words."""

NOTES = (
    "IoU (intersection over union) of a class is the area where prediction and label agree, over the area that either "
    "covers: 0 is a miss, 1 is perfect. The target metric, as published, takes it for each image and class, counts a "
    "class that is absent from both as 1, and averages over classes and images.",
    "That flatters background. It covers nearly every pixel, so a network that finds nothing scores almost 1 on it, "
    "and a full 1 on each class that an image does not hold. The IoU of a class over the pixels of the whole set, and "
    "its mean over the images that hold the class, say what has been learned.",
)
"""How to read the metrics."""


def figures(folder: Path) -> list[Figure]:
    """Return the figures that can be made from the run folder ``folder``. Raises ``DataError`` for a damaged file."""
    plots: list[Figure] = []
    if (folder / "examples.npz").exists():
        drawn = maps(read_arrays(folder / "examples.npz", ("label", "prediction")))
        plots += [] if drawn is None else [drawn]
    overlap = class_overlap(read_summary(folder))
    return plots if overlap is None else [*plots, overlap]


FIELDS = {
    "TMQ": ("Water vapour in the column", "kg/m²", 1.0, (0.02, 0.7)),
    "PSL": ("Pressure at sea level", "hPa", 0.01, (0.7, 0.02)),
    "wind": ("Wind at the lowest level", "m/s", 1.0, (0.02, 0.7)),
}
"""Title, unit, factor to that unit, and greys (of lowest and highest value) of the fields that a map may show."""


@style.styled
def maps(arrays: dict[str, npt.NDArray[np.generic]]) -> Figure | None:
    """Plot the first two of moisture, pressure and wind, with outlines; up to three samples, (samples, height, width).

    Returns ``None`` if the run kept none of the three. Row 0 is the south, column 0 the first east of Greenwich.
    """
    names = [name for name in FIELDS if name in arrays][:2]
    if not names:
        return None
    land, _ = render(1.5)  # the simulator's coasts, in outline the Earth's
    rows = _eventful(arrays["label"], 3)
    figure = style.canvas(1.3 + len(rows) * (2.0 if len(names) > 1 else 4.0))
    panels = figure.subplots(len(rows), len(names), squeeze=False, sharex=True, sharey=True)
    for column, name in enumerate(names):
        title, unit, factor, greys = FIELDS[name]
        colors = ListedColormap(colormaps["Greys"](np.linspace(*greys, 256)))
        values = arrays[name][rows].astype(np.float64) * factor
        low, high = np.quantile(values, [0.005, 0.995])
        for axes, value, row in zip(panels[:, column], values, rows, strict=True):
            image = axes.imshow(value, origin="lower", extent=(0, 360, -90, 90), cmap=colors,
                                vmin=low, vmax=high, interpolation="bilinear")  # fmt: skip
            _geography(axes, land)
            _outlines(axes, arrays["label"][row], arrays["prediction"][row])
        panels[0, column].set_title(title)
        bar = figure.colorbar(image, ax=panels[:, column], location="bottom", shrink=0.5, aspect=35, pad=0.02)
        bar.set_label(unit)
        bar.outline.set_visible(False)
    figure.legend(handles=_legend(), loc="outside upper left", ncols=4, handlelength=2.2)
    caption = (
        "Validation samples, a row each. Shaded: the label. Line: the outline of what the network predicts. Coasts "
        "are drawn for orientation."
    )
    return Figure("maps", "Weather, labels and predictions", caption, figure)


def _eventful(labels: npt.NDArray[np.generic], count: int) -> list[int]:
    """The ``count`` samples that hold the most classes (the first among equals), in order."""
    held = [-len(np.unique(label)) for label in labels]
    return sorted(np.argsort(held, kind="stable")[:count].tolist())


def _geography(axes: Axes, land: npt.NDArray[np.float32]) -> None:
    """Draw latitude and longitude axes, and the coasts of ``land`` (rows, columns), which is 1 on land."""
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _degrees(x if x <= 180 else x - 360, "EW")))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _degrees(y, "NS")))
    axes.set_xticks([0, 90, 180, 270])
    axes.set_yticks([-60, -30, 0, 30, 60])
    axes.set_box_aspect(0.5)
    axes.grid(visible=False)
    rows, columns = land.shape
    longitude, latitude = (np.arange(columns) + 0.5) * 360 / columns, -90 + (np.arange(rows) + 0.5) * 180 / rows
    axes.contour(longitude, latitude, land, levels=[0.5], colors=[style.MUTED], linewidths=0.5)


def _degrees(value: float, letters: str) -> str:
    letter = "" if value in (0, 180) else letters[0] if value > 0 else letters[1]
    return f"{abs(value):.0f}°{letter}"


def _outlines(axes: Axes, label: npt.NDArray[np.generic], prediction: npt.NDArray[np.generic]) -> None:
    height, width = label.shape
    longitude = (np.arange(width) + 0.5) * 360 / width
    latitude = -90 + (np.arange(height) + 0.5) * 180 / height
    for value, name in enumerate(CLASSES):
        if name not in COLORS:
            continue
        for classes, line, fill in ((label, 0.5, True), (prediction, 1.4, False)):
            inside = (classes == value).astype(np.float64)
            if not inside.any():
                continue
            if fill:
                axes.contourf(longitude, latitude, inside, levels=[0.5, 1.5], colors=[COLORS[name]], alpha=0.4)
            axes.contour(longitude, latitude, inside, levels=[0.5], colors=[COLORS[name]], linewidths=line)


def _legend() -> list[Line2D]:
    handles = []
    for name, color in COLORS.items():
        handles.append(Line2D([], [], color=color, linewidth=7, alpha=0.4, label=f"{NAMES[name]}, label"))
        handles.append(Line2D([], [], color=color, linewidth=1.6, label="prediction"))
    return handles


@style.styled
def class_overlap(run: Run) -> Figure | None:
    """Plot the IoU of each class for the network and the baselines; ``None`` if the run was not evaluated."""
    metrics = run.summary.metrics
    shown = [name for name in CLASSES if f"iou_{name}" in metrics]
    if not shown:
        return None
    series = {"network": metrics, **run.summary.baselines}
    figure = style.canvas(2.4)
    axes = figure.subplots()
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        heights = [values.get(f"iou_{cls}", np.nan) for cls in shown]
        at = np.arange(len(shown)) - 0.4 + (index + 0.5) * width
        color = style.BLUE if name == "network" else (style.FAINT, "#c9d0d8", style.MUTED)[(index - 1) % 3]
        bars = axes.bar(at, heights, width * 0.92, color=color, label=words(name))
        axes.bar_label(bars, [units.significant(v, 3) for v in heights], fontsize=8, padding=2, color=style.INK)
    axes.set_xticks(range(len(shown)), [NAMES[name] for name in shown])
    axes.tick_params(axis="x", length=0, labelsize=9)
    axes.set_ylim(0, 1.12)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_ylabel("IoU")
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside upper left", ncols=len(series))
    caption = "Intersection over union of each class over the validation set; 1 is perfect."
    return Figure("overlap", "Overlap of each class", caption, figure, overlap_finding(run, shown))


def overlap_finding(run: Run, classes: Sequence[str]) -> str:
    """For how many classes the network's IoU is above that of every baseline; empty without baselines."""
    known = [[values[f"iou_{name}"] for values in run.summary.baselines.values() if f"iou_{name}" in values]
             for name in classes]  # fmt: skip
    if not all(known):
        return ""
    above = sum(run.summary.metrics[f"iou_{name}"] > max(scores) for name, scores in zip(classes, known, strict=True))
    return f"The network's IoU is above that of every baseline for {above} of {len(classes)} classes"
