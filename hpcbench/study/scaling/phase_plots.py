"""The plots of where a scaling study spends its time: the parts of a step, staging, and a training to the target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from hpcbench.phase_names import BY_NAME, STEP_PARTS
from hpcbench.results import style
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure, Floats, by_row, words
from hpcbench.results.units import significant
from hpcbench.study.plots import log_values
from hpcbench.study.scaling.figure_findings import phases_finding, solution_finding, staging_finding
from hpcbench.study.scaling.plots import (
    draw_ideal,
    draw_points,
    handles,
    looks,
    looks_of,
    node_axis,
    panels,
    shifts,
    sizes,
    with_legend,
)
from hpcbench.study.scaling.point_results import PointResult, by_variant
from hpcbench.study.scaling.table import grouped, nodes_words, parts
from hpcbench.study.scaling.time_to_solution import Solution, cheapest, fastest

HATCHES = {name: BY_NAME[name].hatch for name in STEP_PARTS}
"""Hatches that distinguish the parts in greyscale; compute is plain and dark."""
SOLID: dict[str, Any] = {"markersize": 6, "markeredgewidth": 1.3}
WIDE = 4.0
"""A cost axis is logarithmic if the highest value is more than this many times the lowest."""
MOST_SIZES = 10
"""Most bars in a panel whose totals are written above them."""


@style.styled
def phases(rows: Sequence[PointResult], simulated: bool = False) -> Figure | None:
    """Stacked parts of a step for every size in milliseconds, with their shares alongside for a single variant."""
    rows_by_variant = by_variant([row for row in rows if any(run.step_s for run in row.runs)])
    names = [name for name in grouped(rows) if name in rows_by_variant]
    if not names:
        return None
    alone = len(names) == 1
    across, down = panels(2 if alone else len(names), 3)
    figure = style.canvas(0.8 + (2.7 if down == 1 else 2.4 * down))
    grid = figure.subplots(down, across, sharey=not alone, squeeze=False)
    for axes, name in zip(grid.flat, names, strict=False):
        stack(axes, rows_by_variant[name], share=False, crowded=not alone)
        axes.set_title(fill(name, 78 // across))
        axes.tick_params(labelleft=True)
    for axes in grid[:, 0]:
        axes.set_ylabel("ms per step")
    if alone:
        stack(grid[0, 1], rows_by_variant[names[0]], share=True)
        grid[0, 1].set_ylabel("share of a step")
    for spare in list(grid.flat)[2 if alone else len(names) :]:
        spare.set_visible(False)
    figure.supxlabel("simulated nodes" if simulated else "nodes", fontsize=9, color=style.MUTED)
    patches = [
        Patch(facecolor=style.PHASE_COLORS[phase], edgecolor="white", hatch=HATCHES.get(phase), label=words(phase))
        for phase in STEP_PARTS
    ]
    figure.legend(handles=by_row(patches, 5), loc="outside upper left", ncols=5, handlelength=1.6, handleheight=1.1)
    caption = (
        "Parts of an optimizer step exclude one another: medians over repeats of the mean over ranks. Communication "
        "is what computation did not hide; other is the rest of the step's wall time."
    )
    return Figure("phases", "Where a step spends its time", caption, figure, phases_finding(rows, simulated))


def stack(axes: Axes, rows: Sequence[PointResult], share: bool, crowded: bool = False) -> None:
    """Draw a stacked bar for every size, in shares or in milliseconds; the latter with totals if there is room."""
    bottoms = [0.0] * len(rows)
    steps = [parts(row) for row in rows]
    scales = [1 / (sum(step.values()) or 1) if share else 1e3 for step in steps]
    for phase in STEP_PARTS:
        heights = [step.get(phase, 0.0) * scale for step, scale in zip(steps, scales, strict=True)]
        axes.bar(range(len(rows)), heights, bottom=bottoms, width=0.72, color=style.PHASE_COLORS[phase],
                 hatch=HATCHES.get(phase), edgecolor="white", linewidth=0.5, label=phase)  # fmt: skip
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    if not share and len(rows) <= (MOST_SIZES // 2 if crowded else MOST_SIZES):
        for x, total in enumerate(bottoms):
            axes.annotate(significant(total), (x, total), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    if share:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.margins(y=0 if share else 0.1)
    spare = max(0.0, (4 - len(rows)) / 2)
    axes.set_xlim(-0.6 - spare, len(rows) - 0.4 + spare)
    turned = len(rows) > (6 if crowded else 8)
    axes.set_xticks(range(len(rows)), [f"{row.nodes:,}" for row in rows], rotation=90 if turned else 0)
    axes.grid(visible=False, axis="x")


@style.styled
def staging(rows: Sequence[PointResult], simulated: bool = False) -> Figure | None:
    """Staging bandwidth against nodes, beside the ideal from the smallest size."""
    staged = [row for row in rows if row.values("staging_bytes_per_s")]
    rows_by_variant = {name: members for name, members in by_variant(staged).items() if len(sizes(members)) > 1}
    if not rows_by_variant:
        return None
    nodes, look = sizes([row for members in rows_by_variant.values() for row in members]), looks(rows)
    figure = with_legend(3.1, handles(list(rows_by_variant), look))
    axes = figure.subplots()
    firsts = [
        (members[0].nodes, members[0].middle("staging_bytes_per_s") or 0.0) for members in rows_by_variant.values()
    ]
    draw_ideal(axes, firsts, nodes[-1])
    for (variant, shift), members in zip(
        shifts(list(rows_by_variant), nodes).items(), rows_by_variant.values(), strict=True
    ):
        draw_points(axes, members, "staging_bytes_per_s", look[variant], shift)
    log_values(axes, "staging bandwidth (GB/s)")
    node_axis(axes, nodes, 7.2, simulated)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e9:,.10g}"))
    caption = (
        "Bytes that landed on all nodes together, per second of staging: medians of the repeats, and each repeat as a "
        "faint dot. Dotted: the smallest size times the factor in nodes. A curve that flattens meets the limit of what "
        "the nodes share, such as the file system."
    )
    return Figure("staging", "Staging bandwidth against nodes", caption, figure, staging_finding(rows, simulated))


@style.styled
def solution(solutions: Mapping[str, Sequence[Solution]], simulated: bool = False) -> Figure | None:
    """Time to solution and node-hours of a training against nodes, with the fastest and the cheapest marked."""
    shown = {variant: members for variant, members in solutions.items() if members}
    everything = [training for members in shown.values() for training in members]
    nodes = sorted({training.nodes for training in everything})
    if len(nodes) < 2:
        return None
    longest = max(training.time_s for training in everything)
    unit, length = ("h", 3600.0) if longest > 10800 else ("min", 60.0) if longest > 180 else ("s", 1.0)
    look, best, least = looks_of(list(solutions)), fastest(everything), cheapest(everything)
    figure = with_legend(
        3.4, [Line2D([], [], label=name or "training to the target", **look[name], **SOLID) for name in shown]
    )
    left, right = figure.subplots(1, 2)
    for axes, scale, name, label in (
        (left, length, "time", f"time to solution ({unit})"), (right, 1.0, "node_hours", "node-hours of a training")
    ):  # fmt: skip
        figures = {variant: costs(members, name) / scale for variant, members in shown.items()}
        for variant, shift in shifts(list(shown), nodes).items():
            draw_costs(axes, shown[variant], figures[variant], look[variant], shift)
        cost_axis(axes, np.concatenate(list(figures.values())), label)
        node_axis(axes, nodes, 3.3, simulated)
    style.remark(figure, NOT_VERIFIED)
    for axes, one, name, scale, word in (
        (left, best, "time", length, "fastest"), (right, least, "node_hours", 1.0, "cheapest")
    ):  # fmt: skip
        value, low, _ = costs([one], name)[0] / scale
        mark(axes, one.nodes, float(value), float(low), word)
    caption = (
        "Epochs to the evaluation that meets the target at the batch of each size, from the convergence study, times "
        "the samples of an epoch over the measured throughput, with staging and start."
    )
    if not all(math.isnan(training.time_interval[0]) for training in everything):
        caption += " Bars: 95 % intervals, of the epochs and of the repeats' times together; none for a single repeat."
    if any(training.extrapolated for training in everything):
        caption += " Hollow: the batch lies outside of those at which runs of the convergence study reached the target."
    finding = solution_finding(solutions, simulated)
    return Figure("solution", "Time and cost of a training to the target", caption, figure, finding)


def costs(members: Sequence[Solution], name: str) -> Floats:
    """Seconds (``time``) or node-hours of every size: (sizes, 3) of value, low and high.

    If there is no interval, its ends are the value.
    """
    if name == "time":
        values = np.array([(training.time_s, *training.time_interval) for training in members])
    else:
        values = np.array([(training.node_hours, *training.node_hours_interval) for training in members])
    return np.where(np.isnan(values), values[:, :1], values)


def draw_costs(axes: Axes, members: Sequence[Solution], values: Floats, look: Mapping[str, Any], shift: float) -> None:
    """Draw a figure of every size, (sizes, 3) of value, low and high; hollow if its epochs are extrapolated."""
    at = [training.nodes * shift for training in members]
    middles, lows, highs = values.T
    line = {"color": look["color"], "linestyle": look["linestyle"]}
    axes.errorbar(at, middles, yerr=(middles - lows, highs - middles), **line, capsize=3, elinewidth=1, zorder=3)
    for x, middle, training in zip(at, middles, members, strict=True):
        face = {"markerfacecolor": "white"} if training.extrapolated else {}
        axes.plot(x, middle, **{**look, "linestyle": "none", **SOLID, **face}, zorder=4)


def cost_axis(axes: Axes, values: Floats, label: str) -> None:
    """Set a y axis from 0, or a logarithmic one for a wide range, with room for words below and above."""
    middles, lows, highs = values.T
    if middles.max() > WIDE * middles.min():
        axes.set_ylim(max(float(lows.min()), float(middles.min()) / 2) / 1.7, float(highs.max()) * 1.3)
        log_values(axes, label)
    else:
        axes.set_ylim(0, float(highs.max()) * 1.08)
        axes.set_ylabel(label)


def mark(axes: Axes, nodes: int, value: float, low: float, word: str) -> None:
    """Draw a ring around the best point, with its word below the interval, or above if there is no room."""
    axes.plot(nodes, value, "o", markersize=14, markerfacecolor="none", color=style.INK, markeredgewidth=1.1, zorder=5)
    at = [axes.transAxes.inverted().transform(axes.transData.transform((nodes, y))) for y in (value, max(low, 0))]
    (x, _), (_, below) = at
    side, shift = ("left", -8) if x < 0.2 else ("right", 8) if x > 0.8 else ("center", 0)
    anchor, lift = ((nodes, low), -18) if below > 0.12 else ((nodes, value), 13)
    axes.annotate(
        f"{word}: {nodes_words(nodes)}", anchor, (shift, lift), ha=side, textcoords="offset points", fontsize=8.5,
        zorder=6, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
    )  # fmt: skip
