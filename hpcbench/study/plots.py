"""The plots of a convergence study against batch size and ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from hpcbench.results import style
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure, by_row
from hpcbench.study.definition import Study
from hpcbench.study.figure_findings import epochs_finding, steps_finding, time_finding
from hpcbench.study.fit import EpochFit
from hpcbench.study.results import Row, series
from hpcbench.study.seed_spread import spread, spread_interval

Series = Mapping[str, list[Row]]
"""Rows by label, in the order of their batches."""
DASHES = {"replicate": "-", "shard": "--", "shard+reshuffle": ":", "shard+contiguous": "-."}
MARKERS = {"replicate": "o", "shard": "s", "shard+reshuffle": "^", "shard+contiguous": "v"}


def color(study: Study, row: Row) -> str:
    """The colour of a row's optimizer."""
    known = study.optimizers
    place = known.index(row.point.optimizer) if row.point.optimizer in known else len(known)
    return style.SERIES[place % len(style.SERIES)]


def looks(study: Study, row: Row) -> dict[str, Any]:
    """Colour by optimizer, dash and marker by placement; a borrowed recipe is a diamond."""
    return {
        "color": color(study, row),
        "marker": "D" if row.point.source else MARKERS[row.point.placement],
        "linestyle": "none" if row.point.source else DASHES[row.point.placement],
    }


def line_style(row: Row) -> Any:
    """The dash of a row's curve."""
    return (0, (1, 1)) if row.point.source else DASHES[row.point.placement]


def batch_axis(axes: Axes, batches: Sequence[int], label: str = "global batch size") -> None:
    """Set a logarithmic x axis with the batch sizes themselves as ticks."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(batches))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel(style.log_label(label))


def log_values(axes: Axes, label: str | None) -> None:
    """Set a logarithmic y axis with plain numbers; ``label`` is ``None`` where the title of the axes has its words."""
    axes.set_yscale("log")
    if label is not None:
        axes.set_ylabel(style.log_label(label))
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(10, (1, 2, 5) if high > 6 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def draw_spread(axes: Axes, study: Study, rows: Sequence[Row], value: str, shift: float) -> None:
    """Draw each row's mean with its standard deviation, hollow if a run missed the target, and runs as faint dots."""
    known = [row for row in rows if row.values(value)]
    if not known:
        return
    look = looks(study, rows[0])
    at = [row.point.batch * shift for row in known]
    values = [row.values(value) for row in known]
    for x, seeds in zip(at, values, strict=True):
        axes.plot([x] * len(seeds), seeds, ".", color=look["color"], alpha=0.35, markersize=4, zorder=2)
    errors = [stdev(seeds) if len(seeds) > 1 else 0.0 for seeds in values]
    means = [fmean(seeds) for seeds in values]
    axes.errorbar(at, means, yerr=errors, color=look["color"], linestyle=look["linestyle"], linewidth=1.5, capsize=2.5,
                  elinewidth=1, zorder=3)  # fmt: skip
    for x, mean, row in zip(at, means, known, strict=True):
        face = look["color"] if row.all_reached else "white"
        axes.plot(x, mean, look["marker"], color=look["color"], markerfacecolor=face, markersize=5.5, zorder=4)


def with_outcome(rows: Sequence[Row]) -> list[Row]:
    """The rows of which something is known: runs that ended, or a search in which nothing converged."""
    return [
        row
        for row in rows
        if row.count("reached", "missed", "diverged", "failed") or (row.choice.failed and not row.nothing_to_borrow)
    ]


def mark_missed(
    axes: Axes, study: Study, rows_by_label: Series, shifts: Mapping[str, float], value: str = "epochs"
) -> None:
    """Mark each row without a run that reached the target with a cross at the top; write the share if only some did.

    The axes must have their limits: a share stands where no marker and no other share is.
    """
    missed, some = [], []
    for label, rows in rows_by_label.items():
        for row in rows:
            x, done = row.point.batch * shifts[label], row.count("reached", "missed", "diverged", "failed")
            if row.choice.failed or (done and not row.epochs):
                missed.append(x)
                axes.plot(x, 1.0, "x", color=color(study, row), markersize=6, transform=axes.get_xaxis_transform(),
                          clip_on=False, zorder=5)  # fmt: skip
            elif row.epochs and not row.all_reached:
                some.append((row, x, done))
    bottom, top = axes.get_ylim()
    taken = [in_points(axes, x, top) for x in missed]
    taken += on_line([in_points(axes, x, bottom) for x in axes.get_xlim()])
    for label, rows in rows_by_label.items():
        known = [(row.point.batch * shifts[label], row.values(value)) for row in rows if row.values(value)]
        taken += [in_points(axes, x, y) for x, values in known for y in ends_of_bar(values)]
        if not rows[0].point.source:
            taken += on_line([in_points(axes, x, fmean(values)) for x, values in known])
    for place, (row, done) in {(x, fmean(row.values(value))): (row, done) for row, x, done in reversed(some)}.items():
        offset = free_place(in_points(axes, *place), taken)
        axes.annotate(f"{len(row.epochs)} of {done}", place, offset, textcoords="offset points", fontsize=7.5,
                      ha="center", va="center", color=color(study, row), zorder=6)  # fmt: skip


def on_line(corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points on the line through ``corners``, a sixteenth of each piece apart."""
    parts = np.linspace(0, 1, 17)[1:-1]
    return [
        (x + part * (to_x - x), y + part * (to_y - y))
        for (x, y), (to_x, to_y) in pairwise(corners)
        for part in parts.tolist()
    ]


def ends_of_bar(values: Sequence[float]) -> list[float]:
    """The mean of values, and one standard deviation below and above it; empty for no values."""
    if not values:
        return []
    mean, deviation = fmean(values), stdev(values) if len(values) > 1 else 0.0
    return [mean - deviation, mean, mean + deviation]


def in_points(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Where data stand in the figure, in points."""
    right, up = axes.transData.transform((x, y)) * 72 / axes.figure.dpi
    return float(right), float(up)


def free_place(marker: tuple[float, float], taken: list[tuple[float, float]]) -> tuple[int, int]:
    """The offset in points at which a short text beside ``marker`` covers least of what is there; it is then taken."""

    def room(offset: tuple[int, int]) -> float:
        """Of the nearest point, in halves of the text's width and height; 1 is enough."""
        x, y = marker[0] + offset[0], marker[1] + offset[1]
        return min([1.0, *(max(abs(x - other_x) / 18, abs(y - other_y) / 8) for other_x, other_y in taken)])

    # Bars go up and down, so the sides come first; curves rise with the batch, which leaves these two corners.
    chosen = max(((19, -7), (-19, 7), (19, 7), (-19, -7), (0, 10), (0, -10)), key=room)
    taken.append((marker[0] + chosen[0], marker[1] + chosen[1]))
    return chosen


def shifted(rows_by_label: Series) -> dict[str, float]:
    """A factor for each series, so that their error bars do not overlap."""
    own_labels = [label for label, rows in rows_by_label.items() if not rows[0].point.source]
    offsets = {label: index - (len(own_labels) - 1) / 2 for index, label in enumerate(own_labels)}
    return {label: 1.04 ** offsets.get(rows[0].point.optimizer, 0.0) for label, rows in rows_by_label.items()} | {
        label: 1.04**offset for label, offset in offsets.items()
    }


def legend(study: Study, rows_by_label: Series, columns: int = 6) -> tuple[list[Line2D], int]:
    """A handle for each series, and the number of columns."""
    handles = [
        Line2D([], [], label=label, markersize=5, **looks(study, rows[0])) for label, rows in rows_by_label.items()
    ]
    # A legend has the width of its longest label in every column.
    columns = min(columns, 90 // (8 + max(len(label) for label in rows_by_label)))
    return by_row(handles, columns), columns


@style.styled
def epochs(study: Study, rows: Sequence[Row], fits: Mapping[str, EpochFit]) -> Figure | None:
    """Epochs to target against batch with the fits; beside it, the spread between seeds."""
    rows_by_label = series(rows := with_outcome(rows))
    if not any(row.epochs for row in rows):
        return None
    figure = style.canvas(3.9)
    left, right = figure.subplots(1, 2, width_ratios=[2.3, 1])
    shifts = shifted(rows_by_label)
    for label, members in rows_by_label.items():
        draw_spread(left, study, members, "epochs_to_target", shifts[label])
        draw_spreads(right, study, [row for row in members if len(row.epochs) > 1], shifts[label])
    spreads = [spread(row.epochs) or 0.0 for row in rows if len(row.epochs) > 1]
    batches = [row.point.batch for row in rows]
    for axes in (left, right):
        batch_axis(axes, batches)
    log_values(left, "epochs to target")
    limits = left.get_ylim()  # before the bands, which may reach to zero
    for label, fit in fits.items():
        draw_fit(left, fit, color(study, rows_by_label[label][0]))
    left.set_ylim(limits)
    mark_missed(left, study, rows_by_label, shifts)
    right.set_ylim(0, 2.5 * max(spreads, default=0.0) or None)  # intervals of few seeds go beyond
    right.set_title("standard deviation / mean")
    right.set_xticks(right.get_xticks(), right.get_xticklabels(), rotation=45 if len(set(batches)) > 5 else 0)
    handles, columns = legend(study, rows_by_label)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    caption = (
        "Left: mean over the seeds that reached the target, with their standard deviation; dots are runs, hollow means "
        "that some missed it, a cross at the top that all did. "
        + (
            "Thin dashed lines: fits of epochs(B) = E_min (1 + B / B_crit), for which missed targets count. Half of "
            "the epochs between two evaluations is added, since a run ends at the first one after it met the target. "
            if any(math.isfinite(fit.e_min) for fit in fits.values())
            else ""
        )
        + ("Shaded: the 95 % band of a fit. " if any(fit.lines is not None for fit in fits.values()) else "")
        + "Right: the spread over seeds with its 95 % interval. It decides how many runs a score needs."
    )
    return Figure("epochs", "Epochs to target against batch size", caption, figure, epochs_finding(rows))


def draw_spreads(axes: Axes, study: Study, rows: Sequence[Row], shift: float) -> None:
    """Draw the standard deviation over the mean of each row's epochs, with its interval."""
    if not rows:
        return
    spreads = [spread(row.epochs) or 0.0 for row in rows]
    ends = [spread_interval(row.epochs, row.step) or (0.0, 0.0) for row in rows]
    at = [row.point.batch * shift for row in rows]
    look = looks(study, rows[0])
    axes.vlines(at, *zip(*ends, strict=True), color=look["color"], linewidth=1, alpha=0.4)
    axes.plot(at, spreads, **look, markersize=4.5)


def draw_fit(axes: Axes, fit: EpochFit, color: str) -> None:
    """Draw the epochs at which runs end by the fit, with their band, over the batches of its runs."""
    if not math.isfinite(fit.e_min):
        return
    at = np.geomspace(fit.batch_sizes.min(), fit.batch_sizes.max(), 60)
    axes.plot(at, fit.predict(at) + fit.delay, "--", color=color, linewidth=0.8, zorder=1.6)
    if fit.lines is not None:
        low, high = fit.band(at)
        axes.fill_between(at, low + fit.delay, high + fit.delay, color=color, alpha=0.08, linewidth=0)


@style.styled
def samples_and_steps(study: Study, rows: Sequence[Row]) -> Figure | None:
    """Samples and optimizer steps to target against batch."""
    rows_by_label = series(rows := with_outcome(rows))
    if not any(row.epochs for row in rows):
        return None
    figure = style.canvas(3.2)
    shifts = shifted(rows_by_label)
    for axes, value, name in zip(
        figure.subplots(1, 2), ("samples", "steps"), ("samples to target", "optimizer steps to target"), strict=True
    ):
        for label, members in rows_by_label.items():
            draw_spread(axes, study, members, value, shifts[label])
        batch_axis(axes, [row.point.batch for row in rows])
        log_values(axes, name)
        if value == "samples":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: thousands(number)))
        mark_missed(axes, study, rows_by_label, shifts, value)
    handles, columns = legend(study, rows_by_label)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    caption = (
        "Samples are what a run computes, steps what ranks cannot share: a large machine gains as long as steps fall."
    )
    return Figure("samples-steps", "Samples and steps to target", caption, figure, steps_finding(rows))


def thousands(value: float) -> str:
    """A large count on an axis: ``20k``, ``1.5M``."""
    for factor, letter in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


@style.styled
def time_to_solution(study: Study, rows: Sequence[Row], speed: float, words: str) -> Figure | None:
    """Time to target against ranks for a machine of ``speed`` samples per second and rank."""
    rows_by_label = {label: members for label, members in series(rows).items() if any(row.epochs for row in members)}
    if len({row.ranks for members in rows_by_label.values() for row in members}) < 2:
        return None
    figure = style.canvas(3.3)
    axes = figure.subplots()
    longest = max(
        machine_time(study, row, speed) for members in rows_by_label.values() for row in members if row.epochs
    )
    unit, factor = ("h", 3600) if longest > 10800 else ("min", 60) if longest > 180 else ("s", 1)
    shortest = {}
    for label, members in rows_by_label.items():
        known = [row for row in members if row.epochs]
        shortest[label] = min(known, key=lambda row: machine_time(study, row, speed)).ranks
        seconds = [machine_time(study, row, speed) / factor for row in known]
        axes.plot([row.ranks for row in known], seconds, markersize=5, **looks(study, members[0]))
        if not known[0].point.source and len(known) > 1:
            ideal = [seconds[0] * known[0].ranks / row.ranks for row in known]
            axes.plot([row.ranks for row in known], ideal, color=color(study, members[0]), linewidth=0.7, alpha=0.5,
                      linestyle=(0, (4, 3)))  # fmt: skip
    batch_axis(axes, [row.ranks for row in rows if row.epochs], "data-parallel ranks (global batch / local batch)")
    log_values(axes, f"time to target ({unit})")
    style.remark(figure, NOT_VERIFIED)
    handles, columns = legend(study, rows_by_label)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    caption = (
        f"Samples to target over ranks x {words}. Thin dashed lines: what it would be if more ranks, and so a larger "
        "batch, cost no epochs."
    )
    return Figure("time", "Time to solution on a machine", caption, figure, time_finding(shortest))


def machine_time(study: Study, row: Row, speed: float) -> float:
    """Seconds to target of a row if every rank trains ``speed`` samples per second on its own."""
    return fmean(row.values("samples")) / (speed * study.parallel_efficiency * row.ranks)
