"""The plot of a staging: bytes landed on each node over time, the ceiling that bound it, and the phases below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hpcbench.results import style, units
from hpcbench.results.plots import Figure, by_row, seconds_axis
from staging.probing.ceilings import WORDS

Floats = npt.NDArray[np.float64]

FEW = 8
"""Up to this many nodes each have a line and a bar; for more, the spread is shown."""
GRID = 400
"""Points in time at which many nodes are compared."""
BEFORE = ("list", "plan", "check", "other")
AFTER = ("move", "commit", "wait", "verify")
"""Phases in their order; ``other``, what is between them, is small, and shown where most of it is: before the move."""
COLORS = {
    "list": style.PURPLE,
    "plan": style.INK,
    "check": style.SKY,
    "other": style.FAINT,
    "move": style.BLUE,
    "commit": style.ORANGE,
    "wait": style.GRID,
    "verify": style.GREEN,
}
MEANING = {
    "list": "list the source",
    "check": "check the space",
    "commit": "commit (flush, manifest)",
    "wait": "wait for other ranks",
    "verify": "verify (read again)",
}


@dataclass(frozen=True)
class NodeLine:
    """What one node did: seconds since the start of the staging, bytes landed by then, and the phases."""

    name: str
    times: Floats
    landed: Floats
    phases: dict[str, float]
    """Seconds of the node's slowest rank, in the order in which they happened."""

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end of the staging."""
        return sum(self.phases.values())

    @property
    def busy_s(self) -> float:
        """The same without waiting for slower nodes."""
        return self.seconds - self.phases.get("wait", 0.0)

    @property
    def bytes(self) -> float:
        """Bytes landed at the end."""
        return float(self.landed[-1])


def node_lines(report: Mapping[str, Any]) -> list[NodeLine]:
    """The nodes of a staging report in JSON; empty where it has none, as in reports of other kinds."""
    ranks = report.get("ranks")
    if not isinstance(ranks, list):
        return []
    nodes: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        nodes.setdefault(str(rank["node"]), []).append(rank)
    return [_node_line(name, ranks) for name, ranks in nodes.items()]


def _node_line(name: str, ranks: Sequence[Mapping[str, Any]]) -> NodeLine:
    curves = [_curve(rank) for rank in ranks]
    times = np.unique(np.concatenate([times for times, _ in curves]))
    landed = np.sum([np.interp(times, rank_times, values) for rank_times, values in curves], axis=0)
    phases = [_ordered(rank["phases_s"]) for rank in ranks]
    slowest = max(phases, key=lambda by_phase: sum(by_phase.values()) - by_phase.get("wait", 0.0))
    return NodeLine(name, times, landed, slowest)


def _ordered(phases: Mapping[str, float]) -> dict[str, float]:
    """The phases in the order in which they happen; unknown names count as before the move."""
    new = [name for name in phases if name not in BEFORE + AFTER]
    return {name: float(phases[name]) for name in (*BEFORE[:-1], *new, "other", *AFTER) if phases.get(name, 0) > 0}


def _curve(rank: Mapping[str, Any]) -> tuple[Floats, Floats]:
    """Seconds since the start, and bytes that the rank had landed by then: from none, when it began to move, to all."""
    phases = _ordered(rank["phases_s"])
    start = sum(seconds for name, seconds in phases.items() if name not in AFTER)
    move, total = phases.get("move", 0.0), float(rank["counters"]["bytes_landed"])
    inside = [(time, landed) for time, landed in rank.get("timeline", []) if 0 < time < move]
    points = np.array([(0.0, 0.0), *inside, (max(move, 1e-9), total)], np.float64)
    return start + points[:, 0], points[:, 1]


@style.styled
def timelines(report: Mapping[str, Any]) -> Figure | None:
    """Bytes landed over time, and phases; ``report`` is a staging's report as JSON. ``None`` where nothing landed."""
    nodes = node_lines(report)
    if not nodes or not any(node.bytes for node in nodes):
        return None
    order = sorted(nodes, key=lambda node: node.busy_s)
    slowest = order[-1]
    rows = list(reversed(nodes)) if len(nodes) <= FEW else [order[0], order[(len(order) - 1) // 2], slowest]
    figure = style.canvas(3.35 + 0.24 * len(rows))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2.5, 0.24 * len(rows)])
    if len(nodes) <= FEW:
        _each(upper, nodes, slowest)
    else:
        _spread(upper, nodes, slowest)
    _ceiling(upper, report, nodes)
    _bytes_axis(upper, max(node.bytes for node in nodes))
    labels = [node.name for node in rows] if len(nodes) <= FEW else [
        f"fastest, {rows[0].name}", f"median, {rows[1].name}", f"slowest, {rows[2].name}"
    ]  # fmt: skip
    _bars(lower, rows, labels, slowest)
    _frame(figure, upper, lower, slowest.seconds)
    caption, finding = _caption(report, nodes, slowest), _landed(nodes, slowest)
    return Figure("staging-timelines", "Staging, node by node", caption, figure, finding)


def _each(axes: Axes, nodes: Sequence[NodeLine], slowest: NodeLine) -> None:
    others = [node for node in nodes if node is not slowest]
    for number, node in enumerate(others):
        label = f"other nodes ({len(others)})" if number == 0 else None
        axes.plot(node.times, node.landed, color=style.BLUE, linewidth=1.2, alpha=0.75, label=label, gid="node")
    label = f"slowest node, {slowest.name}" if others else slowest.name
    axes.plot(slowest.times, slowest.landed, color=style.VERMILLION, linewidth=2, label=label, zorder=3, gid="node")


def _spread(axes: Axes, nodes: Sequence[NodeLine], slowest: NodeLine) -> None:
    """All nodes as bands: from the least to the most that any had landed, and from the 10th to the 90th percentile."""
    times = np.linspace(0.0, max(float(node.times[-1]) for node in nodes), GRID)
    landed = np.array([np.interp(times, node.times, node.landed) for node in nodes])
    low, tenth, median, ninetieth, high = np.percentile(landed, [0, 10, 50, 90, 100], axis=0)
    axes.fill_between(times, low, high, color=style.SKY, alpha=0.22, linewidth=0, label=f"all {len(nodes)} nodes")
    axes.fill_between(times, tenth, ninetieth, color=style.SKY, alpha=0.5, linewidth=0, label="80 % of the nodes")
    axes.plot(times, median, color=style.BLUE, linewidth=1.8, label="median", gid="median")
    label = f"slowest node, {slowest.name}"
    axes.plot(slowest.times, slowest.landed, color=style.VERMILLION, linewidth=1.6, label=label, zorder=3, gid="node")


def _ceiling(axes: Axes, report: Mapping[str, Any], nodes: Sequence[NodeLine]) -> None:
    """The line of a node as fast as the part that limited the staging could be, according to the probe."""
    shares = report.get("shares") or []
    if report.get("bound_basis") != "probe" or not shares or not shares[0]["share"]:
        return
    bound = shares[0]
    bound_nodes = [node for node in nodes if node.name == bound["node"]] or list(nodes)
    moved = [seconds for node in bound_nodes if (seconds := _moving(node, bound["part"])) > 0]
    # what all nodes share bounds their mean, and is bound until the last one is done
    rate = sum(node.bytes for node in bound_nodes) / len(bound_nodes) / max(moved) / bound["share"]
    start = min(float(node.times[0]) for node in bound_nodes)
    top = max(node.bytes for node in nodes)
    label = f"ceiling by {WORDS[bound['part']]} ({units.percent(bound['share'])} used)"
    axes.plot([start, start + top / rate], [0, top], color=style.INK, linewidth=1.1, linestyle=(0, (4, 3)), label=label,
              gid="ceiling")  # fmt: skip


def _moving(node: NodeLine, part: str) -> float:
    return node.phases.get("move", 0.0) + (node.phases.get("commit", 0.0) if part == "write_flushed" else 0.0)


def _bytes_axis(axes: Axes, most: float) -> None:
    scale, unit = next(
        (pair for pair in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if most >= pair[0]), (1.0, "B")
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylabel(f"landed on a node ({unit})")
    axes.set_ylim(0, most * 1.06)


def _bars(axes: Axes, rows: Sequence[NodeLine], labels: Sequence[str], slowest: NodeLine) -> None:
    for row, node in enumerate(rows):
        start = 0.0
        for name, seconds in node.phases.items():
            color = COLORS.get(name, style.FAINT)
            axes.barh(row, seconds, left=start, height=0.72, color=color, linewidth=0, gid=name)
            start += seconds
    axes.set_yticks(range(len(rows)), labels)
    for label, node in zip(axes.get_yticklabels(), rows, strict=True):
        if node is slowest and len(rows) > 1:
            label.set_color(style.VERMILLION)
            label.set_fontweight("bold")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _frame(figure: Canvas, upper: Axes, lower: Axes, longest: float) -> None:
    """The time axes and the two legends."""
    lower.set_xlim(0, longest * 1.01)
    seconds_axis(lower, longest)
    lower.set_xlabel(lower.get_xlabel().replace("of the run", "of the staging"))
    upper.tick_params(axis="x", length=0)
    upper.legend(loc="best", handlelength=2.2)
    bars = [bar for bar in lower.patches if isinstance(bar, Rectangle) and bar.get_width() > 2e-3 * longest]
    shown = {str(bar.get_gid()): bar for bar in bars}
    named = by_row([name for name in (*BEFORE, *AFTER) if name in shown], 4)
    handles, words = [shown[name] for name in named], [MEANING.get(name, name) for name in named]
    figure.legend(handles, words, loc="outside lower center", ncols=4, handlelength=1, handleheight=1)


def _landed(nodes: Sequence[NodeLine], slowest: NodeLine) -> str:
    """How many bytes landed where in what time, as a sentence without its full stop."""
    count = "one node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
    return f"{units.size(sum(node.bytes for node in nodes))} landed on {count} in {units.duration(slowest.seconds)}"


def _caption(report: Mapping[str, Any], nodes: Sequence[NodeLine], slowest: NodeLine) -> str:
    text = f"{_landed(nodes, slowest)}. "
    shares = report.get("shares") or []
    if report.get("bound_basis") == "probe" and shares:
        share = units.percent(shares[0]["share"])
        dashed = "dashed" if shares[0]["node"] or len(nodes) == 1 else "dashed: a node's even part of it"
        text += f"It was bound by {WORDS[shares[0]['part']]}, at {share} of the probed ceiling ({dashed}). "
    else:
        text += "No ceiling was probed (hpcbench stage --probe). "
    return text + "Bars: what the slowest rank of each node did, in this order."
