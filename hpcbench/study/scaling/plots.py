"""The plots of speed against nodes of a scaling study: throughput, efficiency, and variants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import median
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from hpcbench.results import style
from hpcbench.results.plots import Figure, by_row
from hpcbench.study.plots import log_values, thousands
from hpcbench.study.scaling.figure_findings import efficiency_finding, throughput_finding, variants_finding
from hpcbench.study.scaling.point_results import Mode, PointResult, by_variant, efficiency, efficiency_interval, rate
from hpcbench.study.scaling.scaling_laws import SpeedFit
from hpcbench.study.scaling.table import grouped

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (5, 2, 1, 2)), (0, (2, 1.5)))
IDEAL: dict[str, Any] = {"color": style.MUTED, "linestyle": (0, (1, 2)), "linewidth": 1.1, "zorder": 1.5}
MEDIAN: dict[str, Any] = {"markersize": 6.5, "markerfacecolor": "white", "markeredgewidth": 1.3}
DOT: dict[str, Any] = {"marker": ".", "linestyle": "none", "markersize": 4.5, "alpha": 0.6}
ACROSS = 4
"""Most panels in a row."""
MOST_NAMED = 10
"""Most points whose figures are written beside them."""


def looks(rows: Sequence[PointResult]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dash of every variant of the study, so that they also differ in greyscale."""
    return looks_of(list(grouped(rows)))


def looks_of(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The same for these variants."""
    triples = zip(names, cycle(style.SERIES), cycle(MARKERS), cycle(DASHES), strict=False)
    return {name: {"color": color, "marker": marker, "linestyle": dash} for name, color, marker, dash in triples}


def sizes(rows: Sequence[PointResult]) -> list[int]:
    """The numbers of nodes that have runs, ascending."""
    return sorted({row.nodes for row in rows if row.runs})


def scaled(rows: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    """The variants that were run at two sizes or more."""
    return {variant: members for variant, members in by_variant(rows).items() if len(sizes(members)) > 1}


def node_axis(axes: Axes, nodes: Sequence[int], inches: float, simulated: bool) -> None:
    """Set a logarithmic x axis of ``inches`` with a tick at every size, and labels at as many as there is room for."""
    axes.set_xscale("log", base=2)
    ends = min(nodes), max(nodes)
    pad = max((ends[1] / ends[0]) ** 0.06, 1.1)
    axes.set_xlim(ends[0] / pad, ends[1] * pad)
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(nodes))))
    axes.xaxis.set_minor_locator(NullLocator())
    named = named_sizes(nodes, inches)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if round(value) in named else ""))
    axes.set_xlabel(style.log_label("simulated nodes" if simulated else "nodes"))


def named_sizes(nodes: Sequence[int], inches: float) -> set[int]:
    """Sizes whose labels do not overlap: first the ends, then doublings, then the others."""
    first, last = min(nodes), max(nodes)
    scale = inches / max(math.log2(last / first), 1)
    doublings = [size for size in sorted(set(nodes)) if math.log2(size / first).is_integer()]
    named: list[int] = []
    for size in dict.fromkeys((last, first, *doublings, *sorted(set(nodes)))):
        room = [0.04 * (len(f"{size:,}") + len(f"{other:,}")) + 0.06 for other in named]
        apart = [abs(math.log2(size / other)) * scale for other in named]
        if all(distance > wanted for distance, wanted in zip(apart, room, strict=True)):
            named.append(size)
    return set(named)


def shifts(variants: Sequence[str], nodes: Sequence[int]) -> dict[str, float]:
    """A factor in nodes for each variant, so that their dots do not overlap."""
    step = (max(nodes) / min(nodes)) ** 0.008
    return {name: step ** (number - (len(variants) - 1) / 2) for number, name in enumerate(variants)}


def handles(shown: Sequence[str], look_by_variant: Mapping[str, Mapping[str, Any]]) -> list[Line2D]:
    """What a legend explains: the variants, each repeat, and the ideal."""
    medians = [Line2D([], [], label=name or "median of repeats", **look_by_variant[name], **MEDIAN) for name in shown]
    repeat = Line2D(
        [], [], label="each repeat", color=look_by_variant[shown[0]]["color"] if len(shown) == 1 else style.MUTED, **DOT
    )
    return [*medians, repeat, Line2D([], [], label="ideal", **IDEAL)]


def with_legend(height: float, lines: Sequence[Line2D]) -> Canvas:
    """A figure whose axes are ``height`` inches high, with a legend above them in rows that fit its width."""
    # A legend has the width of its longest label in every column.
    widest = 0.75 + 0.064 * max(len(str(line.get_label())) for line in lines)
    columns = max(1, min(len(lines), 5, int((style.WIDTH - 0.1) / widest)))
    figure = style.canvas(height + 0.17 * -(-len(lines) // columns))
    figure.legend(handles=by_row(lines, columns), loc="outside upper left", ncols=columns, handlelength=3)
    return figure


def leading(rows: Sequence[PointResult]) -> list[PointResult]:
    """The rows of as many variants as there are markers: those with the highest throughput at their largest size."""
    rows_by_variant = by_variant(rows)
    order = sorted(
        rows_by_variant,
        key=lambda name: (rows_by_variant[name][-1].nodes, rate(rows_by_variant[name][-1])),
        reverse=True,
    )
    return [row for row in rows if row.variant in order[: len(MARKERS)]]


def draw_points(
    axes: Axes, rows: Sequence[PointResult], name: str, look: Mapping[str, Any], shift: float = 1.0
) -> None:
    """Draw the median of a figure at every size, and every repeat as a faint dot."""
    known = [(row, values) for row in rows if (values := row.values(name))]
    at = [row.nodes * shift for row, _ in known]
    axes.plot(at, [median(values) for _, values in known], **look, **MEDIAN, zorder=3)
    for x, (_, values) in zip(at, known, strict=True):
        axes.plot([x] * len(values), values, color=look["color"], **DOT, zorder=4)


def draw_ideal(axes: Axes, firsts: Sequence[tuple[int, float]], largest: int) -> None:
    """Draw the best of ``firsts``, the smallest sizes as (nodes, value), times the factor in nodes."""
    nodes, value = max(firsts, key=lambda first: first[1] / first[0])
    axes.plot([nodes, largest], [value, value * largest / nodes], **IDEAL)


@style.styled
def throughput(
    rows: Sequence[PointResult], mode: Mode, fits: Mapping[str, SpeedFit] | None = None, simulated: bool = False
) -> Figure | None:
    """Throughput against nodes beside the ideal from the smallest size, with the fits; ``None`` for a single size."""
    shown, look_by_variant = scaled(rows), looks(rows)
    if not shown:
        return None
    curves = {name: fit for name, fit in (fits or {}).items() if name in shown and math.isfinite(fit.fraction)}
    nodes = sizes([row for members in shown.values() for row in members])
    figure = with_legend(3.7, handles(list(shown), look_by_variant))
    axes = figure.subplots()
    draw_ideal(axes, [(members[0].nodes, rate(members[0])) for members in shown.values()], nodes[-1])
    for (variant, shift), members in zip(shifts(list(shown), nodes).items(), shown.values(), strict=True):
        joined = {} if variant not in curves else {"linestyle": "none"}
        draw_points(axes, members, "samples_per_s", look_by_variant[variant] | joined, shift)
    log_values(axes, "training samples/s")
    limits = axes.get_ylim()  # before the bands, which may reach to zero
    for variant, fit in curves.items():
        draw_fit(axes, fit, look_by_variant[variant], sizes(shown[variant]))
    axes.set_ylim(limits)
    node_axis(axes, nodes, 7.2, simulated)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
    caption = throughput_caption(mode, curves, len(shown) > 1)
    return Figure("throughput", "Throughput against nodes", caption, figure, throughput_finding(rows, simulated))


def draw_fit(axes: Axes, fit: SpeedFit, look: Mapping[str, Any], nodes: Sequence[int]) -> None:
    """Draw the fitted law with its band, over the sizes ``nodes``."""
    at = np.geomspace(nodes[0], nodes[-1], 80)
    middle, (low, high) = fit.predict(at), fit.band(at)
    axes.plot(at, middle, color=look["color"], linestyle=look["linestyle"], linewidth=1.1, zorder=1.6)
    axes.fill_between(at, np.maximum(low, 1e-2 * middle), np.minimum(high, 1e2 * middle), color=look["color"],
                      alpha=0.13, linewidth=0)  # fmt: skip


def throughput_caption(mode: Mode, curves: Mapping[str, SpeedFit], several: bool) -> str:
    """What the plot of throughput shows."""
    laws = " and ".join(sorted({fit.law for fit in curves.values()}))
    of = "all instances together" if mode == "throughput" else "all nodes together"
    return (
        f"Training samples per second of {of}: medians of the repeats, and each repeat as a faint dot. Dotted: "
        + ("the fastest variant of " if several else "")
        + "the smallest size times the factor in nodes."
        + (f" Curves: {laws}'s law fitted to the repeats; shaded: its 95 % band." if laws else "")
    )


@style.styled
def efficiencies(rows: Sequence[PointResult], simulated: bool = False) -> Figure | None:
    """Efficiency against nodes, with the range of the repeats; ``None`` for a single size."""
    shown, look_by_variant = scaled(rows), looks(rows)
    if not shown:
        return None
    nodes = sizes([row for members in shown.values() for row in members])
    figure = with_legend(3.1, handles(list(shown), look_by_variant))
    axes = figure.subplots()
    axes.axhline(1.0, **IDEAL)
    for (variant, shift), members in zip(shifts(list(shown), nodes).items(), shown.values(), strict=True):
        draw_efficiency(axes, members, look_by_variant[variant], shift, named=len(shown) == 1)
    node_axis(axes, nodes, 7.2, simulated)
    reached = [efficiency(row, members[0]) for members in shown.values() for row in members]
    axes.set_ylim(0, min(max(1.1, axes.get_ylim()[1]), 1.5 * max(reached)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_ylabel("efficiency")
    caption = (
        "Throughput over that of the smallest size, divided by the factor in nodes: median, every repeat as a dot, and "
        "its 95 % interval as a bar where both sizes have several repeats."
    )
    return Figure("efficiency", "Efficiency against nodes", caption, figure, efficiency_finding(rows, simulated))


def draw_efficiency(
    axes: Axes, rows: Sequence[PointResult], look: Mapping[str, Any], shift: float, named: bool
) -> None:
    """Draw the efficiency of a variant with interval and repeats, and write it below the points if there is room."""
    first, at = rows[0], [row.nodes * shift for row in rows]
    middles = np.array([efficiency(row, first) for row in rows])
    repeats = [
        [middle * (samples_per_s / rate(row)) for samples_per_s in row.values("samples_per_s")]
        for row, middle in zip(rows, middles, strict=True)
    ]
    bounds = [efficiency_interval(row, first) or (middle, middle) for row, middle in zip(rows, middles, strict=True)]
    # A median of few repeats may lie outside of the interval, which is of the mean.
    lows, highs = np.minimum([low for low, _ in bounds], middles), np.maximum([high for _, high in bounds], middles)
    axes.errorbar(
        at, middles, yerr=(middles - lows, highs - middles), **look, **MEDIAN, capsize=3, elinewidth=1, zorder=3
    )
    for x, by_repeat in zip(at, repeats, strict=True):
        axes.plot([x] * len(by_repeat), by_repeat, color=look["color"], **DOT, zorder=4)
    for x, middle, low in zip(at, middles, np.minimum(lows, [min(by_repeat) for by_repeat in repeats]), strict=True):
        if named and len(rows) <= MOST_NAMED:
            axes.annotate(
                f"{100 * middle:.0f} %", (x, low), (0, -14), textcoords="offset points", ha="center", fontsize=8
            )


def panels(count: int, most: int) -> tuple[int, int]:
    """Columns and rows for ``count`` panels, at most ``most`` in a row and about the same number in each."""
    down = -(-count // most)
    return -(-count // down), down


@style.styled
def variants(rows: Sequence[PointResult], simulated: bool = False) -> Figure | None:
    """A dot plot of throughput by variant, a panel per size; ``None`` for a single variant."""
    names = [name for name in grouped(rows) if name in by_variant(rows)]
    nodes = sizes(rows)
    if len(names) < 2:
        return None
    labels = [fill(name or "as given", 32 if len(names) <= ACROSS * 2 else 48) for name in names]
    across, down = panels(len(nodes), ACROSS)
    tall = 0.12 + 0.14 * max(label.count("\n") + 1 for label in labels)
    figure = style.canvas(0.5 + down * (0.55 + tall * len(names)))
    grid = figure.subplots(down, across, sharey=True, squeeze=False)
    for axes, size in zip(grid.flat, nodes, strict=False):
        here = [row for row in rows if row.nodes == size and row.runs]
        best = max(rate(row) for row in here)
        for row in here:
            y, look = names.index(row.variant), looks(rows)[row.variant]
            axes.plot(row.values("samples_per_s"), [y] * len(row.runs), ".", color=look["color"], alpha=0.4)
            face = look["color"] if rate(row) == best else "white"
            axes.plot(rate(row), y, look["marker"], color=look["color"], markerfacecolor=face, markersize=6.5, zorder=3)
        axes.set_title(f"{size:,} " + ("simulated " if simulated else "") + ("node" if size == 1 else "nodes"))
        axes.margins(x=0.15)
        axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    for spare in list(grid.flat)[len(nodes) :]:
        spare.set_visible(False)
    grid[0, 0].set_ylim(len(names) - 0.5, -0.5)
    grid[0, 0].set_yticks(range(len(names)), labels)
    figure.supxlabel("training samples/s", fontsize=9, color=style.MUTED)
    caption = (
        "Medians of the repeats, filled where they are the highest of their size, and each repeat as a faint dot. The "
        "axes do not start at 0."
    )
    return Figure("variants", "Throughput by variant", caption, figure, variants_finding(rows, simulated))
