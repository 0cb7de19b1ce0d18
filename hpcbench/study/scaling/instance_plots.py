"""The plot of when the instances of a throughput study trained, by their own clocks."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from hpcbench.results import style
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure
from hpcbench.study.scaling.concurrency import InstanceClock
from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.table import place

MOST_NAMED = 40
"""Most instances whose names are written beside them."""
TALLEST = 5.5
"""Most inches of the axes."""


@style.styled
def timeline(rows: Sequence[PointResult], simulated: bool = False) -> Figure | None:
    """A bar for each instance of the point with the most instances, in the repeat in which they overlap least.

    ``None`` if no point has several instances.
    """
    row = max((row for row in rows if any(run.clocks for run in row.runs)), key=lambda row: row.instances, default=None)
    if row is None:
        return None
    run = min((run for run in row.runs if run.clocks), key=lambda run: run.together or 0.0)
    order = sorted(run.clocks, key=lambda clock: (clock.start_s, clock.name))
    first = order[0].start_s
    length, unit = time_unit(max(clock.stop_s for clock in order) - first)
    figure = style.canvas(0.9 + min(TALLEST, 0.4 + 0.2 * len(order)))
    axes = figure.subplots()
    draw(axes, order, {instance.name for instance in run.pruned if instance.cause != "missed"}, first, length)
    axes.set_xlabel(f"time since the first run_start ({unit})")
    axes.set_xlim(left=0)
    axes.set_ylim(len(order) - 0.4, -0.6)
    if len(order) <= MOST_NAMED:
        axes.set_yticks(range(len(order)), [clock.name.rpartition("-")[2] for clock in order])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_ylabel("instances in the order of their starts")
    lines: list[Patch | Line2D] = [Patch(color=style.SERIES[0], label="trained")]
    if len(order) > run.instances:
        lines.append(Patch(color=style.MUTED, alpha=0.45, label="pruned: at another time"))
    if together := all_at_once(order, run):
        begin, end = ((moment - first) / length for moment in together)
        axes.axvspan(begin, end, color=style.SERIES[0], alpha=0.1, linewidth=0, zorder=0)
        lines.append(Patch(color=style.SERIES[0], alpha=0.1, label="all of them at once"))
    figure.legend(handles=lines, loc="outside upper left", ncols=len(lines), handlelength=1.6)
    if run.models:  # the bars are times to the target
        style.remark(figure, NOT_VERIFIED)
    return Figure("instances", "When the instances trained", caption(row, run, simulated), figure, finding(row, run))


def draw(axes: Axes, order: Sequence[InstanceClock], pruned: set[str], first: float, length: float) -> None:
    """Draw a bar from ``run_start`` to ``run_stop`` of each instance, with gaps where it was interrupted."""
    for number, clock in enumerate(order):
        look = {"color": style.MUTED, "alpha": 0.45} if clock.name in pruned else {"color": style.SERIES[0]}
        bars = [((begin - first) / length, (end - begin) / length) for begin, end in clock.running]
        axes.broken_barh(bars, (number - 0.36, 0.72), linewidth=0, **look)


def all_at_once(clocks: Sequence[InstanceClock], run: RepeatResult) -> tuple[float, float] | None:
    """From the last start to the first stop of the instances that count; ``None`` if they do not overlap."""
    apart = {instance.name for instance in run.pruned if instance.cause != "missed"}
    counted_clocks = [clock for clock in clocks if clock.name not in apart]
    begin, end = max(clock.start_s for clock in counted_clocks), min(clock.stop_s for clock in counted_clocks)
    return (begin, end) if end > begin else None


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit for an axis of this many seconds: its length in seconds, and its symbol."""
    return (3600.0, "h") if seconds > 10_800 else (60.0, "min") if seconds > 180 else (1.0, "s")


def finding(row: PointResult, run: RepeatResult) -> str:
    """How many instances trained at the same time, and for how much of their time."""
    counted = f"{run.instances:,}" + (f" of {row.instances:,}" if run.instances < row.instances else "")
    return f"{counted} instances trained at the same time, all of them for {100 * (run.together or 0.0):.0f} % of it"


def caption(row: PointResult, run: RepeatResult, simulated: bool) -> str:
    """How to read the bars."""
    which = " in the repeat in which they overlap least" if len(row.runs) > 1 else ""
    where = place(row) if not simulated else place(row).replace(" node", " simulated node", 1)
    return (
        f"The instances on {where}{which}, each from its run_start to its run_stop, without interruptions. Their "
        "speeds tell how they slow one another down only while all of them train."
    )
