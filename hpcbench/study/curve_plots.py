"""Plots of how the runs of a convergence study went: quality against epochs, and the searches for a learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from hpcbench.results import style, units
from hpcbench.results.plots import Figure, by_row, draw_levels, epoch_axis, metric_label
from hpcbench.results.records import Run
from hpcbench.study.definition import Study
from hpcbench.study.figure_findings import quality_finding, search_finding
from hpcbench.study.plots import color, line_style
from hpcbench.study.results import Row, series

WIDEST_MATRIX = 4
"""Panels in a row."""
SEED_DASHES = ("-", "--", ":")
"""Line styles of the seeds of a search; the last one is for all further seeds."""


@style.styled
def quality(study: Study, rows: Sequence[Row], curves: Mapping[str, Run]) -> Figure | None:
    """The validation metric against epochs, a panel per batch, a line per seed."""
    shown = [row for row in rows if any(run.name in curves for run, _ in row.runs)]
    if not shown:
        return None
    batches = sorted({row.point.batch for row in shown})
    across = min(WIDEST_MATRIX, len(batches))
    down = -(-len(batches) // across)
    figure = style.canvas(0.7 + 2.1 * down)
    grid = figure.subplots(down, across, sharey=True, sharex=True, squeeze=False)
    first = next(iter(curves.values())).summary
    panels = dict(zip(batches, grid.flat, strict=False))
    for row in shown:
        for run, _ in row.runs:
            if run.name in curves and first.metric in curves[run.name].epochs:
                table = curves[run.name].epochs
                panels[row.point.batch].plot(
                    table["epoch"], table[first.metric], color=color(study, row), linewidth=1,
                    linestyle=line_style(row), alpha=0.8,
                )  # fmt: skip
    hide_unused(grid, len(batches))
    for batch, axes in panels.items():
        axes.set_title(f"batch {batch:,}")
        epoch_axis(axes, [number for run in curves.values() for number in run.epochs["epoch"]], 5)
        if first.target is not None:
            if batch == batches[across - 1]:
                draw_levels([axes], [(first.target, f"{units.score(first.target)} target", style.MUTED, "--")])
            else:
                axes.axhline(first.target, color=style.MUTED, linestyle="--", linewidth=1.1, zorder=1.5)
    for axes in grid[:, 0]:
        axes.set_ylabel(f"validation {metric_label(first.metric)}")
    figure.supxlabel("epoch", fontsize=9, color=style.MUTED)
    rows_by_label = series(shown)
    handles = [
        Line2D([], [], color=color(study, members[0]), label=label, linestyle=line_style(members[0]))
        for label, members in rows_by_label.items()
    ]
    columns = min(6, 90 // (8 + max(len(label) for label in rows_by_label)))
    figure.legend(handles=by_row(handles, columns), loc="outside upper left", ncols=columns)
    caption = "One line for each seed; it ends where the target is met."
    return Figure("quality", "Quality against epochs", caption, figure, quality_finding(shown, curves))


@style.styled
def search(study: Study, rows: Sequence[Row]) -> Figure | None:
    """What the searches found: epochs to target against the multiple of the rule's rate."""
    searched = [row for row in rows if any(state.final for _, state in row.search)]
    if not searched:
        return None
    labels = list(series(searched))
    across = min(WIDEST_MATRIX, len(labels))
    down = -(-len(labels) // across)
    figure = style.canvas(0.8 + 2.0 * down)
    grid = figure.subplots(down, across, sharey=True, sharex=True, squeeze=False)
    batches = sorted({row.point.batch for row in searched})
    shade = {batch: 0.25 + 0.75 * index / max(1, len(batches) - 1) for index, batch in enumerate(batches)}
    for axes, (label, members) in zip(grid.flat, series(searched).items(), strict=False):
        for row in members:
            draw_search(axes, row, color(study, row), shade[row.point.batch])
        axes.set_title(label)
        axes.set_xscale("log", base=2)
        tried = sorted({run.multiplier for row in searched for run, _ in row.search})
        axes.xaxis.set_major_locator(FixedLocator(tried))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    hide_unused(grid, len(labels))
    for axes in grid[:, 0]:
        axes.set_ylabel("epochs to target")
    figure.supxlabel(style.log_label("multiple of the rule's learning rate"), fontsize=9, color=style.MUTED)
    handles = [Line2D([], [], color=style.INK, alpha=shade[batch], marker="o", markersize=4, label=f"batch {batch:,}")
               for batch in batches]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper left", ncols=6)
    failed = any(state.status == "failed" for row in searched for _, state in row.search)
    caption = (
        "One dot for each run that reached the target, darker for larger batches, dashed for further seeds. Crosses at "
        f"the top missed the target{', diverged or failed' if failed else ' or diverged'}. Rings mark the chosen "
        "multiples."
    )
    return Figure("search", "The search for a learning rate", caption, figure, search_finding(searched))


def hide_unused(grid: npt.NDArray[Any], used: int) -> None:
    """Hide the panels after the first ``used``; those above a hidden one label the ticks of their shared axis."""
    across = grid.shape[1]
    for number, axes in enumerate(grid.flat):
        axes.set_visible(number < used)
        axes.xaxis.set_tick_params(labelbottom=number + across >= used)


def draw_search(axes: Axes, row: Row, color: str, alpha: float) -> None:
    """Draw epochs to target against the multiples that a row tried; a line per seed, as not all have every seed."""
    reached: dict[int, dict[float, float]] = {}
    for run, state in sorted(row.search, key=lambda pair: pair[0].multiplier):
        if state.status == "reached" and state.summary is not None:
            reached.setdefault(run.seed, {})[run.multiplier] = float(state.summary.epochs_to_target or 0)
        elif state.final:
            ring = [("o", 9)] if run.multiplier == row.choice.multiplier else []
            for mark, size in [("x", 6), *ring]:
                axes.plot(run.multiplier, 1.0, mark, color=color, alpha=alpha, markersize=size, clip_on=False,
                          markerfacecolor="none", transform=axes.get_xaxis_transform())  # fmt: skip
    for number, seed in enumerate(sorted(reached)):
        epochs, dash = reached[seed], SEED_DASHES[min(number, len(SEED_DASHES) - 1)]
        axes.plot(*zip(*epochs.items(), strict=True), "o", linestyle=dash, color=color, alpha=alpha, markersize=4,
                  linewidth=1.2)  # fmt: skip
        if (chosen := row.choice.multiplier) in epochs:
            axes.plot(chosen, epochs[chosen], "o", markersize=9, markerfacecolor="none", color=color, alpha=alpha)
