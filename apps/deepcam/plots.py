"""Plots and words for the report of a DeepCAM run: maps with outlines, and the overlap of each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from apps.deepcam.config import CLASSES
from apps.deepcam.geography import render
from hpcbench.results import style, units
from hpcbench.results.plots import Figure
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
    "iou": "mean IoU, the target metric",
    **{f"iou_{name}": f"IoU of {label}" for name, label in NAMES.items()},
    **{f"share_{name}": f"samples that hold {label}" for name, label in NAMES.items()},
}
"""Metrics in words."""

BASELINE_LABELS = {"background": "predict background everywhere", "thresholds": "thresholds on single pixels"}
"""Baselines in words."""

NOTES = (
    "IoU (intersection over union) of a class is the area where prediction and label agree, over the area that either "
    "covers. The target metric, as published, takes it per sample and class, counts a class that is absent from both "
    "as 1, and averages over classes and samples.",
    "That flatters background: it covers almost every pixel, so a network that finds nothing scores near 1 on it, and "
    "scores a full 1 on every cyclone-free sample too. The IoU of each class, and the share of samples that hold it, "
    "say what has been learned.",
)
"""How to read the metrics."""


def figures(folder: Path) -> list[Figure]:
    """The figures that the files of the run folder ``folder`` allow. Raises ``DataError`` for a damaged file."""
    found: list[Figure] = []
    if (folder / "examples.npz").exists():
        arrays = read_arrays(folder / "examples.npz", ("TMQ", "label", "prediction"))
        found.append(maps(arrays))
    overlap = class_overlap(read_summary(folder))
    return found if overlap is None else [*found, overlap]


@style.styled
def maps(arrays: dict[str, npt.NDArray[np.generic]]) -> Figure:
    """Moisture and pressure or wind of up to three samples, (samples, height, width), with both outlines."""
    rows = min(3, arrays["TMQ"].shape[0])
    second = next((name for name in ("PSL", "wind") if name in arrays), "TMQ")
    names = ["TMQ", second] if second != "TMQ" else ["TMQ"]
    figure = style.canvas(0.75 + rows * (1.95 if len(names) > 1 else 3.6))
    panels = figure.subplots(rows, len(names), squeeze=False, sharex=True, sharey=True)
    for row in range(rows):
        for axes, name in zip(panels[row], names, strict=True):
            _map(axes, arrays[name][row].astype(np.float64), name)
            _coast(axes)
            _outlines(axes, arrays["label"][row], arrays["prediction"][row])
            if row == 0:
                axes.set_title(FIELDS[name])
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, handlelength=2.2)
    caption = (
        "Validation samples, a row each. Shaded with a thin edge: the label. Thick line: what the network predicts."
    )
    return Figure("maps", "Weather, labels and predictions", caption, figure)


FIELDS = {"TMQ": "Water vapour in the column (TMQ)", "PSL": "Sea-level pressure (PSL)", "wind": "Wind speed"}


def _map(axes: Axes, field: npt.NDArray[np.float64], name: str) -> None:
    """One field on latitude and longitude axes, row 0 in the south."""
    low, high = np.quantile(field, [0.005, 0.995])
    colors = "Greys_r" if name == "PSL" else "Greys"
    axes.imshow(field, origin="lower", extent=(0, 360, -90, 90), cmap=colors, alpha=0.8,
                vmin=low - 0.25 * (high - low), vmax=high, interpolation="bilinear")  # fmt: skip
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _degrees(x if x <= 180 else x - 360, "EW")))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _degrees(y, "NS")))
    axes.set_xticks([0, 90, 180, 270])
    axes.set_yticks([-60, -30, 0, 30, 60])
    axes.set_box_aspect(0.5)
    axes.grid(visible=False)


def _coast(axes: Axes) -> None:
    """The simulator's coasts, which are those of the Earth in outline."""
    land, _ = render(1.0)
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
    """IoU of each class for the network beside the baselines; ``None`` where the run was not evaluated."""
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
        label = name if name == "network" else BASELINE_LABELS.get(name, name.replace("_", " "))
        bars = axes.bar(at, heights, width * 0.92, color=color, label=label)
        axes.bar_label(bars, [units.significant(v, 3) for v in heights], fontsize=8, padding=2, color=style.INK)
    axes.set_xticks(range(len(shown)), [NAMES[name] for name in shown])
    axes.tick_params(axis="x", length=0, labelsize=9)
    axes.set_ylim(0, 1.12)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_ylabel("IoU")
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside upper left", ncols=len(series))
    caption = "Intersection over union of each class over the validation set; 1 is perfect."
    return Figure("overlap", "Overlap of each class", caption, figure)
