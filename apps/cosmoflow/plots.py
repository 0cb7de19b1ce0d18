"""Plots and texts for the report of a CosmoFlow run: predictions against truth, and slices of the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from apps.cosmoflow.config import PARAMETERS
from hpcbench.config.read_yaml import read_yaml
from hpcbench.results import style, units
from hpcbench.results.plots import Figure
from hpcbench.results.records import read_arrays

ABOUT = (
    "A 3-D convolutional network looks at how dark matter is distributed in a box of the universe, at several moments "
    "of cosmic time, and estimates the four numbers that shaped it: the matter density, the strength of "
    "clustering, the tilt of the primordial spectrum and the Hubble constant."
)
"""What the application is, for a reader who has never heard of it."""

SYMBOLS = {"omega_m": r"$\Omega_m$", "sigma_8": r"$\sigma_8$", "n_s": r"$n_s$", "h_0": r"$H_0$"}
NAMES = {"omega_m": "Ωₘ", "sigma_8": "σ₈", "n_s": "nₛ", "h_0": "H₀"}

LABELS = {
    "mae": "mean absolute error (MAE)",
    "mse": "mean squared error",
    **{f"mae_{name}": f"MAE of {NAMES[name]}" for name in PARAMETERS},
}
"""Metrics in words."""

NOTES = (
    "The labels are scaled so that the range of each parameter is [-1, 1]. Always answering the middle of the range "
    "has a mean absolute error of 0.5; a perfect network has 0.",
    "The average hides much: σ₈ is written plainly into the clustering of matter, while the Hubble constant leaves "
    "little trace in a single small box. Read the error of each parameter beside its baseline.",
)
"""How to read the metrics."""

Array = npt.NDArray[np.float64]


def figures(folder: Path) -> list[Figure]:
    """Return the figures that can be made from the files in the run folder ``folder``.

    Raises ``DataError`` for a damaged ``scores.npz`` or ``examples.npz``.
    """
    plots: list[Figure] = []
    if (folder / "scores.npz").exists():
        arrays = read_arrays(folder / "scores.npz", ("scores", "columns"))
        columns = {str(name): arrays["scores"][:, i] for i, name in enumerate(arrays["columns"])}
        if all(f"predicted_{name}" in columns and f"true_{name}" in columns for name in PARAMETERS):
            plots.append(predictions(columns))
    if (folder / "examples.npz").exists():
        arrays = read_arrays(folder / "examples.npz", ("slice",))
        plots.append(slices(arrays["slice"], _configuration(folder)))
    return plots


@style.styled
def predictions(columns: dict[str, Array]) -> Figure:
    """Plot the four predicted parameters against the true; ``columns``: ``predicted_*`` and ``true_*``, (samples,)."""
    figure = style.canvas(2.75)
    better = 0
    for axes, name in zip(figure.subplots(1, 4, sharex=True, sharey=True), PARAMETERS, strict=True):
        true, predicted = columns[f"true_{name}"], columns[f"predicted_{name}"]
        size = float(np.clip(900 / len(true), 2, 14))
        axes.plot([-1.1, 1.1], [-1.1, 1.1], color=style.INK, linewidth=0.9, zorder=2)
        axes.axhline(0, color=style.MUTED, linewidth=0.9, linestyle="--", zorder=2)
        axes.scatter(true, predicted, s=size, color=style.BLUE, alpha=0.55, linewidths=0, zorder=3, rasterized=True)
        error, by_mean = np.abs(predicted - true).mean(), np.abs(true - true.mean()).mean()
        better += bool(error < by_mean)
        axes.set_title(SYMBOLS[name], fontsize=12, pad=17)
        numbers = f"MAE {units.significant(error)}   (mean {units.significant(by_mean)})"
        axes.annotate(numbers, (0, 1), (0, 6), "axes fraction", "offset points", fontsize=8, color=style.MUTED)
        axes.set(xlim=(-1.1, 1.1), ylim=(-1.25, 1.25), xticks=[-1, 0, 1], yticks=[-1, 0, 1], xlabel="true")
        axes.set_box_aspect(1)
        if name == PARAMETERS[0]:
            axes.set_ylabel("predicted")
    caption = (
        f"Each dot is one of {len(true):,} validation samples, in labels scaled to [-1, 1]. A perfect network lies "
        "on the diagonal; one that has learned nothing lies on the dashed line. In brackets: the error of predicting "
        "the mean of these samples."
    )
    finding = f"The error is below that of predicting the mean for {better} of {len(PARAMETERS)} parameters"
    return Figure("predictions", "Predicted against true parameters", caption, figure, finding)


@style.styled
def slices(maps: npt.NDArray[np.generic], config: dict[str, Any]) -> Figure:
    """Plot slices through up to two input samples, (samples, channels, size, size), one column per redshift.

    ``config`` is the configuration of the run; columns are numbered if it does not give their redshifts.
    """
    rows, channels = min(2, maps.shape[0]), maps.shape[1]
    shown = maps[:rows].astype(np.float64)
    redshifts = (config.get("simulate") or {}).get("redshifts") or []
    figure = style.canvas(0.3 + rows * min(1.9, style.WIDTH / channels - 0.2))
    panels = figure.subplots(rows, channels, squeeze=False)
    data = config.get("data") or {}
    standardized = bool(data.get("input_mean"))
    low = float(shown.min()) if standardized else 0.0
    top = float(np.quantile(shown, 0.998)) or 1.0
    for row, channel in np.ndindex(rows, channels):
        axes: Axes = panels.item(row, channel)
        image = axes.imshow(shown[row, channel], cmap="magma", vmin=low, vmax=top, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
        if row == 0:
            axes.set_title(f"z = {redshifts[channel]:g}" if len(redshifts) == channels else f"channel {channel}")
    bar = figure.colorbar(image, ax=panels, shrink=0.8, aspect=28, pad=0.015, extend="max")
    quantity = "ln(1 + particles in a cell)" if data.get("apply_log", True) else "particles in a cell, over their mean"
    bar.set_label(f"{quantity}, standardized" if standardized else quantity)
    bar.outline.set_visible(False)
    caption = (
        "One plane of cells through each of the first validation samples, as the network sees them; a row is one "
        "sample. Time runs from left to right, from high redshift z to today (z = 0): matter falls together into "
        "filaments and knots."
    )
    return Figure("slices", "What the network sees", caption, figure)


def _configuration(folder: Path) -> dict[str, Any]:
    """The run's configuration; empty if the folder has none."""
    path = folder / "config.yaml"
    return read_yaml(path) if path.exists() else {}
