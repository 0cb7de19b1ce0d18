"""A plot of your own runs among published entries: time to train, and samples per second of an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hpcbench.results import style
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure
from hpcbench.results.units import duration

CLOCK = (0.1, 1, 10, 60, 600, 3600, 36000, 360000)
"""Marks of an axis of seconds, from 0.1 s to 100 h."""
POWERS = tuple(10.0**power for power in range(-6, 9))


@dataclass(frozen=True)
class Mark:
    """A row of the plot. An unknown value has no mark."""

    is_own: bool
    name: str
    time_s: float | None
    rate: float | None


@style.styled
def marks_plot(application: str, marks: Sequence[Mark]) -> Figure:
    """Plot a row for each of ``marks`` in both panels, on logarithmic axes."""
    figure = style.canvas(0.9 + 0.215 * len(marks))
    times, rates = figure.subplots(1, 2, sharey=True)
    draw(times, [mark.time_s for mark in marks], marks, CLOCK, clock)
    draw(rates, [mark.rate for mark in marks], marks, POWERS, lambda value: f"{value:g}")
    times.set_xlabel(style.log_label("time to train"))
    rates.set_xlabel(style.log_label("samples/s of an accelerator"))
    times.set_yticks(range(len(marks)), [mark.name for mark in marks])
    for text, mark in zip(times.get_yticklabels(), marks, strict=True):
        text.set_color(style.VERMILLION if mark.is_own else style.INK)
    times.set_ylim(len(marks) - 0.4, -0.6)
    if any(mark.is_own for mark in marks):
        style.remark(figure, f"orange: {NOT_VERIFIED}")
    caption = f"Orange: {NOT_VERIFIED}. Blue: published entries with their round and number of accelerators."
    title = "Time to train, and how fast each accelerator is"
    return Figure(f"{application}-beside", title, caption, figure, published_range(marks))


def published_range(marks: Sequence[Mark]) -> str:
    """Between which times the published entries lie; targets of your own runs may differ, so these are in no order."""
    times = [mark.time_s for mark in marks if not mark.is_own and mark.time_s]
    ends = list(dict.fromkeys(duration(time_s) for time_s in (min(times), max(times)))) if times else []
    return f"The published entries take {' to '.join(ends)} to train" if ends else ""


def draw(
    axes: Axes, values: Sequence[float | None], marks: Sequence[Mark], ticks: Sequence[float],
    words: Callable[[float], str],
) -> None:  # fmt: skip
    """Draw one panel, labelling those of ``ticks`` that lie within its range by ``words``."""
    known = [value for value in values if value]
    low, high = (min(known) / 1.6, max(known) * 1.6) if known else (1.0, 10.0)
    axes.set_xscale("log")
    for row, (value, mark) in enumerate(zip(values, marks, strict=True)):
        if value:
            color = style.VERMILLION if mark.is_own else style.BLUE
            axes.plot(value, row, "D" if mark.is_own else "o", color=color, markersize=6 if mark.is_own else 4.5)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="y", length=0)


def clock(value: float) -> str:
    """Format a mark of the axis of seconds: ``10 s``, ``1 min``, ``10 h``."""
    unit, factor = ("s", 1) if value < 60 else ("min", 60) if value < 3600 else ("h", 3600)
    return f"{value / factor:g} {unit}"
