"""The plot of compute: rate per accelerator against local batch and scale, and model FLOP/s over peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hpcbench.analysis.compute_rows import ComputeRow, family
from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.figure_findings import compute_finding
from hpcbench.analysis.machine_names import accelerator_kind
from hpcbench.analysis.plot_parts import (
    log_axis,
    note_own,
    powers_of_two,
)  # fmt: skip
from hpcbench.application_names import application_name
from hpcbench.results import style
from hpcbench.results.plots import Figure

MOST_PANELS = 3
RATE = "samples/s each"
COLORS = (*style.SERIES, style.YELLOW, style.MUTED, style.FAINT)


@style.styled
def compute(rows: Sequence[ComputeRow], entries: Mapping[tuple[str, str], EntryRuns]) -> Figure | None:
    """A column for each application: against local batch, against accelerators, and over peak."""
    applications = list(dict.fromkeys(row.application for row in rows))[:MOST_PANELS]
    if not applications:
        return None
    rows = [row for row in rows if row.application in applications]
    kinds = sorted({accelerator_kind(row.accelerator) for row in rows})
    colors = {kind: COLORS[place % len(COLORS)] for place, kind in enumerate(kinds)}
    with_peak = any(row.of_peak is not None for row in rows)
    lines = 3 if with_peak else 2
    figure = style.canvas(0.7 + 2.25 * lines)
    panels = figure.subplots(lines, len(applications), squeeze=False, sharey="row" if with_peak else False)
    for place, application in enumerate(applications):
        members = [row for row in rows if row.application == application]
        column = [line[place] for line in panels]
        column[0].set_title(application_name(application))
        draw(column[0], members, "local_batch", "rate", colors)
        powers_of_two(column[0], [row.local_batch or 1 for row in members], "samples per accelerator", 7)
        log_axis(column[0], "y", RATE)
        for axes, name in ((column[1], "rate"), (column[-1], "of_peak"))[: lines - 1]:
            draw(axes, members, "accelerators", name, colors)
            join_families(axes, members, name, entries, colors)
            powers_of_two(axes, [row.accelerators or 1 for row in members], "accelerators", 7)
            log_axis(axes, "y", RATE if name == "rate" else "model FLOP/s / peak (%)")
    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=5, color=colors[kind], label=kind) for kind in kinds
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=7, columnspacing=1.2)
    note_own(figure, list(entries.values()))
    caption = (
        "Training samples/s of each accelerator (a node without any counts as one), against the samples of a step on "
        "each, and against the accelerators of an instance. Thin lines join entries of one "
        "round, submitter and accelerator. Hollow: throughput; stars: own."
        + (
            " Below: rate x operations of a training sample over the accelerator's peak in 16 bits."
            if with_peak
            else ""
        )
    )
    return Figure("compute", "Rate per accelerator", caption, figure, compute_finding(rows))


def value(row: ComputeRow, name: str) -> float | None:
    """A value of a row as it is drawn."""
    number = getattr(row, name)
    return None if number is None else float(number) * (100 if name == "of_peak" else 1)


def located(rows: Sequence[ComputeRow], across: str, name: str) -> list[tuple[ComputeRow, float, float]]:
    """Rows with their coordinates, where both are known."""
    points = [(row, value(row, across), value(row, name)) for row in rows]
    return [(row, x, y) for row, x, y in points if x is not None and y is not None]


def draw(axes: Axes, rows: Sequence[ComputeRow], across: str, name: str, colors: Mapping[str, str]) -> None:
    """Draw a marker for each row, with one call for each style."""
    looks: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row, x, y in located(rows, across, name):
        marker = "*" if row.verified else "o" if row.mode == "time to train" else "s"
        looks.setdefault((colors[accelerator_kind(row.accelerator)], marker), []).append((x, y))
    for (color, marker), points in looks.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker, linestyle="none", color=color, alpha=0.9,
                  markerfacecolor="white" if marker == "s" else color, markersize=9 if marker == "*" else 5,
                  zorder=3)  # fmt: skip
    axes.margins(0.09)


def join_families(
    axes: Axes, rows: Sequence[ComputeRow], name: str, entries: Mapping[tuple[str, str], EntryRuns],
    colors: Mapping[str, str],
) -> None:  # fmt: skip
    """Draw a thin line through entries that differ in scale."""
    points_by_family: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    kinds: dict[tuple[object, ...], str] = {}
    for row, x, y in located(rows, "accelerators", name):
        key = family(entries[row.application, row.entry])
        points_by_family.setdefault(key, []).append((x, y))
        kinds[key] = accelerator_kind(row.accelerator)
    for key, points in points_by_family.items():
        ordered = sorted(points)
        axes.plot([x for x, _ in ordered], [y for _, y in ordered], linewidth=0.7, alpha=0.6, color=colors[kinds[key]],
                  zorder=2)  # fmt: skip
