"""The plot of what layer-wise optimizers do to each layer."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hpcbench.results import style
from hpcbench.results.figure_findings import trust_ratios_finding
from hpcbench.results.plots import Figure, spread
from hpcbench.results.records import Run

MOST_LINES = len(style.SERIES)
"""The most layers that are drawn one by one; for more, their median, middle half and range are drawn."""


@style.styled
def trust_ratios(run: Run) -> Figure | None:
    """The trust ratios of the adapted layers while the run trained, if they were recorded."""
    if not run.folder.trust_ratios.exists():
        return None
    table = run.folder.read_trust_ratios().pivot_table(index="step", columns="layer", values="trust_ratio", sort=False)
    adapted = table.loc[:, (table != 1).any()]
    if adapted.empty or len(adapted) < 2:
        return None
    figure = style.canvas(3.2)
    axes = figure.subplots()
    axes.set_yscale("log")
    few = adapted.shape[1] <= MOST_LINES
    (draw_lines if few else draw_bands)(axes, adapted)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel(style.log_label("trust ratio"))
    axes.set_xlabel("optimizer step")
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 2.5, 5, 10]))
    shown = "a line each" if few else "median, middle half and range, these two shaded"
    caption = (
        f"What multiplies the rate of each of {adapted.shape[1]} layers: the norm of its weights over that of its "
        f"update ({shown})."
    )
    last = adapted.ffill().iloc[-1].tolist()
    return Figure("trust_ratios", "Trust ratios of the layers", caption, figure, trust_ratios_finding(last))


def draw_lines(axes: Axes, table: pd.DataFrame) -> None:
    """A line per layer, named at its end."""
    for name, color in zip(table.columns, style.SERIES, strict=False):
        axes.plot(table.index, table[name], color=color)
    low, high = np.log10(np.array(axes.get_ylim()))
    ends = ((np.log10(table.ffill().iloc[-1]) - low) / (high - low)).tolist()
    for name, color, place in zip(table.columns, style.SERIES, spread(ends, 0.06), strict=False):
        axes.annotate(name, (1.0, place), (6, 0), xycoords="axes fraction", textcoords="offset points",
                      color=color, va="center", fontsize=8.5, annotation_clip=False)  # fmt: skip


def draw_bands(axes: Axes, table: pd.DataFrame) -> None:
    """The median over layers, between the bands that hold half of them and all."""
    for low, high, alpha in ((0.0, 1.0, 0.12), (0.25, 0.75, 0.25)):
        bounds = table.quantile(low, axis=1), table.quantile(high, axis=1)
        axes.fill_between(table.index, *bounds, color=style.BLUE, alpha=alpha, linewidth=0)
    axes.plot(table.index, table.median(axis=1), color=style.BLUE)
