"""The plot of a scenario: its figure against the accelerators, with the reference results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullLocator

from hpcbench.campaign.response import FIGURES, ResponseRow
from hpcbench.campaign.rules import UNITS, Scenario
from hpcbench.results import style, units
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure

Point = tuple[float, float]


@style.styled
def metric_plot(scenario: Scenario, rows: Sequence[ResponseRow], rehearsal: bool) -> Figure | None:
    """Results as filled marks, their runs as small ones, references as open squares; ``None`` if there are none.

    Runs that do not count are crosses.
    """
    series = list(series_of(scenario, rows))
    if not any(points for _, _, points in series):
        return None
    figure = style.canvas(2.9)
    axes = figure.add_subplot()
    sizes: set[float] = set()
    categories = list(dict.fromkeys(category for category, _, _ in series))
    for category, kind, points in series:
        color = style.SERIES[categories.index(category) % len(style.SERIES)]
        draw(axes, category, kind, points, color)
        sizes |= {x for x, _ in points}
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(sizes))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    unit = UNITS[scenario.metric.what]
    axes.set_ylabel(style.log_label(value_label(scenario)))
    values = [y for _, _, points in series for _, y in points]
    if max(values) < 4 * min(values):  # a logarithmic axis has few marks within so small a range
        axes.set_yscale("linear")
        axes.yaxis.set_major_locator(AutoLocator())
        axes.set_ylim(0, 1.15 * max(values))
        axes.set_ylabel(value_label(scenario))
    axes.set_xlabel(style.log_label("accelerators (ranks of a rehearsal)" if rehearsal else "accelerators"))
    style.remark(figure, f"filled marks: {NOT_VERIFIED}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    text = scenario.metric.text
    what = f"Small numbers for: {text}" if rehearsal else text[:1].upper() + text[1:]
    caption = f"{what} ({unit}; lower is better)."
    if any(row.kind == "reference" for row in rows):
        caption += " Open squares are published reference results."
    title = f"{'Rehearsal: ' if rehearsal else ''}{scenario.title}"
    return Figure(f"metric-{scenario.name}", title, caption, figure, "" if rehearsal else best_result(series, unit))


def value_label(scenario: Scenario) -> str:
    """The label of the axis of the figure: the text of the rules where that is short, else what it is."""
    text = scenario.metric.text
    return text.partition(",")[0] if len(text) < 34 else scenario.metric.what.replace("_", " ")


def best_result(series: Sequence[tuple[str, str, list[Point]]], unit: str) -> str:
    """The lowest figure of a size, as a sentence without its full stop; empty if no size has one."""
    best = min(((y, x, category) for category, kind, points in series if kind == "result" for x, y in points),
               default=None)  # fmt: skip
    if best is None:
        return ""
    value, accelerators, category = best
    on = units.counted(round(accelerators), "accelerator")
    return f"The lowest of your figures is {units.significant(value, 4)} {unit}, on {on} ({category})"


def draw(axes: Axes, category: str, kind: str, points: Sequence[Point], color: str) -> None:
    """Draw one series of points."""
    if not points:
        return
    x, y = zip(*points, strict=True)
    if kind == "reference":
        axes.plot(x, y, "s", color=color, markerfacecolor="none", markersize=7, label=f"reference, {category}")
    elif kind == "result":
        axes.plot(x, y, "o-", color=color, markersize=6, label=category)
    elif kind == "uncounted":
        axes.plot(x, y, "x", color=color, alpha=0.7, markersize=5, label=f"does not count, {category}")
    else:
        axes.plot(x, y, "o", color=color, alpha=0.45, markersize=3.5)


def series_of(scenario: Scenario, rows: Sequence[ResponseRow]) -> Iterator[tuple[str, str, list[Point]]]:
    """Category, kind and points of each series; single runs of a throughput scenario have no figure of their own.

    The kind is that of the rows, and ``uncounted`` for runs that do not count.
    """
    column = FIGURES[scenario.metric.what]
    for category in dict.fromkeys(str(row.cells["category"]) for row in rows):
        for kind in ("reference", "result", "run", "uncounted"):
            if kind in ("run", "uncounted") and scenario.throughput:
                continue
            points = []
            for row in rows:
                x, y = row.cells.get("accelerators"), row.cells.get(column)
                if kind_of(row) == kind and row.cells["category"] == category and isinstance(x, int) and (
                    isinstance(y, int | float)
                ):  # fmt: skip
                    points.append((float(x), float(y)))
            yield category, kind, sorted(points)


def kind_of(row: ResponseRow) -> str:
    """The kind of a row, and ``uncounted`` for a run that does not count."""
    return "uncounted" if row.kind == "run" and row.cells.get("valid") == "no" else row.kind
