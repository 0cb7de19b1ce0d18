"""Plots of convergence: epochs against batch beside the reference points, and the spread between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hpcbench.analysis.convergence_rows import ConvergenceRow, ReferenceRow
from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.figure_findings import convergence_finding, variation_finding
from hpcbench.analysis.machine_names import Labels
from hpcbench.analysis.plot_parts import (
    APPLICATION_COLORS,
    OWN_COLOR,
    ROUND_COLORS,
    log_axis,
    note_own,
    powers_of_two,
    round_color,
    round_name,
)  # fmt: skip
from hpcbench.analysis.variation_rows import VariationRow
from hpcbench.application_names import application_name
from hpcbench.results import style, units
from hpcbench.results.plots import Figure

MOST_PANELS = 3
FAR = 1.35
"""Entries with this many times the epochs of their reference, or more, are named."""


@style.styled
def convergence(
    rows: Sequence[ConvergenceRow], references: Sequence[ReferenceRow], entries: Mapping[tuple[str, str], EntryRuns],
    labels: Labels,
) -> Figure | None:  # fmt: skip
    """Epochs against batch, a panel for each application."""
    applications = list(dict.fromkeys(row.application for row in rows if row.batch))[:MOST_PANELS]
    if not applications:
        return None
    figure = style.canvas(3.9)
    panels = figure.subplots(1, len(applications), squeeze=False)[0]
    for axes, application in zip(panels, applications, strict=True):
        points = [point for point in references if point.application == application]
        members = [row for row in rows if row.application == application and row.batch]
        draw_points(axes, points)
        far = draw_entries(axes, members, entries)
        powers_of_two(axes, [row.batch or 1 for row in members] + [point.batch for point in points], "global batch", 7)
        log_axis(axes, "y", "epochs to the target")
        axes.margins(0.09)
        axes.set_title(application_name(application))
        name_far(axes, far, labels)
    rounds = list(dict.fromkeys(round_name(entry) for entry in entries.values()))
    figure.legend(handles=legend(sorted(rounds)), loc="outside upper left", ncols=6)
    note_own(figure, list(entries.values()))
    caption = (
        "Entries by round: the mean over runs of distinct trajectory, with the fewest and the most epochs of a run. "
        "Black: reference convergence points of rules 3.0.0 (v1.0 and later), hollow where the checker drops them "
        "because they converge more slowly than the line between their neighbours, or are of a smaller batch than "
        f"the fastest. Numbered: entries that need {FAR} times the epochs of their point or more."
    )
    return Figure("convergence", "Epochs against batch", caption, figure, convergence_finding(rows, FAR))


def draw_points(axes: Axes, points: Sequence[ReferenceRow]) -> None:
    """Reference points with the range of their runs; a line through those that the checker keeps."""
    kept = [point for point in points if point.kept == "yes"]
    axes.vlines(
        [p.batch for p in points], [p.least for p in points], [p.most for p in points], color=style.INK, linewidth=1
    )
    axes.plot([p.batch for p in kept], [p.epochs for p in kept], color=style.INK, linewidth=0.8, linestyle="--")
    for hollow in (True, False):
        drawn = [point for point in points if (point.kept != "yes") == hollow]
        axes.plot([p.batch for p in drawn], [p.epochs for p in drawn], "D", color=style.INK, markersize=5.5, zorder=4,
                  markerfacecolor="white" if hollow else style.INK)  # fmt: skip


def draw_entries(
    axes: Axes, rows: Sequence[ConvergenceRow], entries: Mapping[tuple[str, str], EntryRuns]
) -> list[tuple[ConvergenceRow, float]]:
    """Draw entries a little beside their batch, so that rounds do not hide one another; return those far above."""
    colors = [round_color(entries[row.application, row.entry]) for row in rows]
    order = {color: place for place, color in enumerate(sorted(set(colors)))}
    at = [(row.batch or 1) * 1.09 ** (order[color] + 1) for row, color in zip(rows, colors, strict=True)]
    axes.vlines(at, [row.least for row in rows], [row.most for row in rows], colors=colors, linewidth=0.9, alpha=0.6)
    axes.scatter(at, [row.epochs for row in rows], c=colors, s=24, zorder=5, linewidths=0.5, edgecolors="white")
    return [(row, x) for row, x in zip(rows, at, strict=True) if (row.over_reference or 0) >= FAR]


def name_far(axes: Axes, far: Sequence[tuple[ConvergenceRow, float]], labels: Labels) -> None:
    """Write numbers beside entries far above their reference, and their names in the upper left."""
    ordered = sorted(far, key=lambda pair: (-pair[0].epochs, pair[1]))
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** (0.05 * len(ordered)))
    for number, (row, x) in enumerate(ordered, 1):
        name = f"{number}  {labels[row.application, row.entry]}: {units.significant(row.epochs)}"
        axes.annotate(name, (0.02, 1.025 - 0.05 * number), xycoords="axes fraction", fontsize=7, color=style.MUTED,
                      va="center")  # fmt: skip
        axes.annotate(str(number), (x, row.epochs), (5, -2.5), textcoords="offset points", fontsize=7,
                      fontweight="bold", color=style.INK)  # fmt: skip


def legend(rounds: Sequence[str]) -> list[Line2D]:
    """Legend entries of the rounds and of the reference points."""
    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=5, label=name,
               color=OWN_COLOR if name == "own" else ROUND_COLORS.get(name, style.ORANGE))
        for name in rounds
    ]  # fmt: skip
    return [*handles, Line2D([], [], color=style.INK, linestyle="--", linewidth=0.8, marker="D", markersize=5,
                             label="reference point")]  # fmt: skip


@style.styled
def variation(rows: Sequence[VariationRow], entries: Sequence[EntryRuns]) -> Figure | None:
    """Spread of epochs against that of seconds per epoch, and beside it the share that epochs explain."""
    known = [row for row in rows if row.epochs_sd is not None and row.explained is not None and not row.same_as]
    if not known:
        return None
    figure = style.canvas(3.2)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    colors = [APPLICATION_COLORS.get(row.application, style.MUTED) for row in known]
    x, y = [100 * (row.epochs_sd or 0) for row in known], [100 * row.epoch_s_sd for row in known]
    left.scatter(x, y, c=colors, s=26, edgecolors="white", linewidths=0.5, zorder=3)
    top = 1.06 * max(*x, *y)
    left.plot([0, top], [0, top], color=style.FAINT, linewidth=0.8)
    left.annotate("epochs vary more", (0.97, 0.03), xycoords="axes fraction", ha="right", fontsize=8, color=style.MUTED)
    left.annotate("seconds per epoch vary more", (0.03, 0.95), xycoords="axes fraction", fontsize=8, color=style.MUTED)
    left.set_xlabel("standard deviation of ln(epochs) (%)")
    left.set_ylabel("of ln(seconds per epoch) (%)")
    shares = sorted((100 * (row.explained or 0), color) for row, color in zip(known, colors, strict=True))
    right.scatter(
        range(1, len(shares) + 1), [share for share, _ in shares], c=[color for _, color in shares], s=18, zorder=3
    )
    right.axhline(median(share for share, _ in shares), color=style.MUTED, linewidth=0.8, linestyle="--")
    right.set_xlabel("entries, in order")
    right.set_ylabel("variance of ln(time) by epochs (%)")
    right.set_ylim(-3, 103)
    names = list(dict.fromkeys(row.application for row in known))
    handles = [Line2D([], [], linestyle="none", marker="o", markersize=5, label=application_name(name),
                      color=APPLICATION_COLORS.get(name, style.MUTED)) for name in names]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper left", ncols=4)
    note_own(figure, entries)
    caption = (
        "A dot is an entry of three runs or more. Left: what varies between its runs. Right: the square of the "
        "correlation of ln(time) and ln(epochs); dashed, its median."
    )
    return Figure("variation", "Why runs of one entry differ", caption, figure, variation_finding(known))
