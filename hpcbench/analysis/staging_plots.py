"""The plot of staging: bytes per node and second, share of the run, and the first epoch, against nodes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.lines import Line2D

from hpcbench.analysis.entry_runs import THROUGHPUT, EntryRuns
from hpcbench.analysis.figure_findings import staging_finding
from hpcbench.analysis.plot_parts import APPLICATION_COLORS, log_axis, note_own, powers_of_two
from hpcbench.analysis.staging_rows import StagingRow
from hpcbench.application_names import application_name
from hpcbench.results import style
from hpcbench.results.plots import Figure

LEAST_SHARE = 1e-3
"""Staging below this share of a run is bookkeeping, and is not drawn as a rate."""
PANELS = (
    ("node_gb_s", "set per node (GB/s)"),
    ("share", "share of the time to train (%)"),
    ("first_epoch", "first epoch / others"),
)


@style.styled
def staging(rows: Sequence[StagingRow], entries: Sequence[EntryRuns]) -> Figure | None:
    """Three panels against nodes."""
    rows = [row for row in rows if row.nodes]
    if not any(row.share or row.first_epoch for row in rows):
        return None
    figure = style.canvas(3.2)
    panels = figure.subplots(1, 3)
    for axes, (name, label) in zip(panels, PANELS, strict=True):
        drawn = [
            row for row in rows if getattr(row, name) and (name == "first_epoch" or (row.share or 1) > LEAST_SHARE)
        ]
        for (application, own, mode), members in grouped(drawn).items():
            values = [getattr(row, name) * (100 if name == "share" else 1) for row in members]
            axes.plot([row.nodes for row in members], values, "*" if own else marker(mode), linestyle="none",
                      color=APPLICATION_COLORS.get(application, style.MUTED), markersize=9 if own else 5, alpha=0.85,
                      markerfacecolor=None if mode == "time to train" or own else "white")  # fmt: skip
        if drawn:
            powers_of_two(axes, [row.nodes or 1 for row in drawn], "nodes of an instance", 6)
        if drawn and name != "share":
            log_axis(axes, "y", label)
        else:
            axes.set_ylabel(label)
        axes.margins(0.08)
    panels[1].set_ylim(bottom=0)
    panels[2].axhline(1, color=style.FAINT, linewidth=0.8)
    figure.legend(handles=handles(rows), loc="outside upper left", ncols=5)
    note_own(figure, entries)
    caption = (
        "Left: bytes of the stored set over nodes and seconds of staging, what each node at least took in. Middle: "
        "staging within the clock. Right: over the median of the others; a first epoch that takes longer reads data "
        "that were not staged, or stages them unseen; it also holds what warms up once."
    )
    return Figure("staging", "Staging against nodes", caption, figure, staging_finding(rows))


def grouped(rows: Sequence[StagingRow]) -> dict[tuple[str, bool, str], list[StagingRow]]:
    """Rows grouped by their look: application, own or published, and mode."""
    groups: dict[tuple[str, bool, str], list[StagingRow]] = {}
    for row in rows:
        groups.setdefault((row.application, bool(row.verified), row.mode), []).append(row)
    return groups


def marker(mode: str) -> str:
    """A circle for time to train, a square for throughput."""
    return "o" if mode == "time to train" else "s"


def handles(rows: Sequence[StagingRow]) -> list[Line2D]:
    """The legend."""
    return [
        Line2D([], [], linestyle="none", marker="*" if own else marker(mode), markersize=8 if own else 5,
               color=APPLICATION_COLORS.get(application, style.MUTED),
               markerfacecolor=None if mode == "time to train" or own else "white",
               label=f"{application_name(application)}{', own' * own}{', throughput' * (mode == THROUGHPUT)}")
        for application, own, mode in sorted(grouped(rows))
    ]  # fmt: skip
