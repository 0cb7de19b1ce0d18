"""The map of memory tiers: for each machine, which tier of a node holds its part of the set, by number of nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from hpcbench.analysis.figure_findings import tiers_finding
from hpcbench.analysis.machine_names import short_names
from hpcbench.analysis.plot_parts import powers_of_two
from hpcbench.analysis.tier_rows import TierRow
from hpcbench.application_names import application_name
from hpcbench.results import style
from hpcbench.results.plots import Figure

SHARED, STORAGE, MEMORY, ACCELERATOR, UNKNOWN = "#F3B48B", style.ORANGE, style.SKY, style.GREEN, style.COLORS["pale"]
Ran = Sequence[tuple[str, str, int]]
"""Entries: name of the set, title of the machine, nodes."""


@style.styled
def tier_map(rows: Sequence[TierRow], ran: Ran, own_title: str | None = None) -> Figure | None:
    """A row for each machine, a panel for each set; ``own_title`` is the title of the machine in bold."""
    sets = list(dict.fromkeys(row.application for row in rows))
    if not sets:
        return None
    machines = list(dict.fromkeys(row.machine for row in rows))
    machines.sort(key=lambda title: (title != own_title, title.casefold()))
    figure = style.canvas(1.5 + 0.235 * len(machines))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    most = 2 * max(
        [row.batch_nodes or 1 for row in rows] + [nodes for name, _, nodes in ran if name in sets], default=1
    )
    for axes, name in zip(panels, sets, strict=True):
        members = {row.machine: row for row in rows if row.application == name}
        draw_rows(axes, [members[title] for title in machines], most)
        at = [(nodes, machines.index(title)) for problem, title, nodes in ran if problem == name and title in members]
        axes.plot([x for x, _ in at], [y for _, y in at], "o", color=style.INK, markersize=3.6, markeredgecolor="white",
                  markeredgewidth=0.6, zorder=5)  # fmt: skip
        axes.set_title(f"{application_name(name)}, {members[machines[0]].set_gb / 1e3:.2f} TB")
        powers_of_two(axes, [1, most], "nodes of an instance", 6)
        axes.set_xlim(0.8, most)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(machines)), short_names(machines), color=style.INK)
    for tick, title in zip(panels[0].get_yticklabels(), machines, strict=True):
        tick.set_fontweight("bold" if title == own_title else "normal")
    panels[0].set_ylim(len(machines) - 0.4, -0.6)
    figure.legend(handles=legend(), loc="outside upper left", ncols=4, handlelength=1.2, handleheight=1, fontsize=8)
    caption = (
        "The fastest tier of a node that holds its part of the set, against the nodes of an instance, each of which "
        "keeps a part. Orange is where storage in the nodes decides: without it, training reads from the shared file "
        "system, as it does where a bar is rose. Dots: entries. Hatched: more nodes than the largest reference batch "
        "occupies at one sample per accelerator. What training itself takes of a memory comes off."
    )
    return Figure("tiers", "Which memory tier holds the set?", caption, figure, tiers_finding(rows))


def draw_rows(axes: Axes, rows: Sequence[TierRow], most: int) -> None:
    """Draw the bars of a panel: segments by tier, with one call for each tier."""
    segments: dict[str, list[tuple[int, float, float]]] = {}
    for place, row in enumerate(rows):
        for color, start, end in tiers_of(row, most):
            segments.setdefault(color, []).append((place, start, end))
    for color, bars in segments.items():
        axes.barh([place for place, _, _ in bars], [end - start for _, start, end in bars], height=0.74, color=color,
                  left=[start for _, start, _ in bars], edgecolor="white", linewidth=0.4)  # fmt: skip
    limited = [(place, row.batch_nodes) for place, row in enumerate(rows) if row.batch_nodes]
    axes.barh([place for place, _ in limited], [most - nodes for _, nodes in limited], height=0.74, hatch="/////",
              left=[nodes for _, nodes in limited], facecolor="#ffffffb0",
              edgecolor=style.FAINT, linewidth=0)  # fmt: skip


def tiers_of(row: TierRow, most: int) -> list[tuple[str, float, float]]:
    """Colour and ends of the segments of a bar; less than one node counts as one."""
    ends = [
        (ACCELERATOR, row.accelerator_nodes), (MEMORY, row.memory_nodes),
        (STORAGE, row.storage_nodes), (UNKNOWN if row.storage_gb is None else SHARED, 1),
    ]  # fmt: skip
    segments, end = [], float(most)
    for color, start in ends:
        first = math.inf if start is None else 0.8 if start == 1 else float(start)
        if first < end:
            segments.append((color, first, end))
            end = first
    return segments


def legend() -> list[Patch | Line2D]:
    """Legend entries of the tiers, the hatching and the dots."""
    words = {
        SHARED: "shared file system alone", STORAGE: "node storage", MEMORY: "node memory",
        ACCELERATOR: "accelerator memory", UNKNOWN: "node storage unknown",
    }  # fmt: skip
    hatched = Patch(facecolor="white", edgecolor=style.FAINT, hatch="/////", linewidth=0, label="beyond the batch")
    dot = Line2D([], [], linestyle="none", marker="o", color=style.INK, markersize=3.6, label="an entry")
    return [*(Patch(color=color, label=label) for color, label in words.items()), hatched, dot]
