"""What the plots of an analysis share: colours, axes with plain numbers, legends, and the note on own results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.results import style
from hpcbench.results.not_verified import NOT_VERIFIED

TERM_COLORS = {
    "epochs": style.BLUE, "samples": style.FAINT, "accelerators": style.ORANGE, "rate": style.VERMILLION,
    "evaluation": style.PURPLE, "first": style.YELLOW, "staging": style.GREEN, "rest": style.MUTED,
    "spread": style.SKY, "instances": style.INK,
}  # fmt: skip
ROUND_COLORS = {"v0.7": style.FAINT, "v1.0": style.BLUE, "v2.0": style.GREEN, "v3.0": style.PURPLE}
OWN_COLOR = style.VERMILLION
APPLICATION_COLORS = {
    "cosmoflow": style.BLUE,
    "deepcam": style.VERMILLION,
    "oc20": style.GREEN,
    "openfold": style.PURPLE,
}


def round_color(entry: EntryRuns) -> str:
    """The colour of an entry's round, or that of your own entries."""
    return OWN_COLOR if entry.is_own else ROUND_COLORS.get(entry.first.round or "", style.ORANGE)


def round_name(entry: EntryRuns) -> str:
    """The round in a legend."""
    return "own" if entry.is_own else entry.first.round or "no round"


def log_axis(axes: Axes, which: str, label: str) -> None:
    """A logarithmic axis with plain numbers; its label says so."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set_xscale("log") if which == "x" else axes.set_yscale("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_locator(LogLocator(10, (1,) if high > 300 * low else (1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_label_text(style.log_label(label))


def powers_of_two(axes: Axes, values: Sequence[float], label: str, most: int = 8) -> None:
    """A logarithmic x axis with powers of two as ticks; its label says so."""
    axes.set_xscale("log", base=2)
    first, last = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    ticks = [2.0**power for power in range(first, last + 1, -(-(last - first + 1) // most))]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.10g}" if value >= 1 else f"1/{1 / value:,.10g}")
    )
    axes.set_xlabel(style.log_label(label))


def note_own(figure: Canvas, entries: Sequence[EntryRuns]) -> None:
    """Say on a plot with own results that nobody verified them."""
    if any(entry.is_own for entry in entries):
        style.remark(figure, f"entries of no round: {NOT_VERIFIED}")
