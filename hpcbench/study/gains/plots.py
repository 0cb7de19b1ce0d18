"""The plots of a gains study: step time and quality of every option beside the baseline, and the parts of a step."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from hpcbench.phase_names import STEP_PARTS
from hpcbench.results import style
from hpcbench.results.figure_findings import phase_words
from hpcbench.results.plots import Figure, metric_label
from hpcbench.results.units import counted, whole_percent
from hpcbench.study.gains.results import OptionResult, Results
from hpcbench.study.gains.sentences import label
from hpcbench.study.gains.table import members, short

COLORS = {"faster": style.BLUE, "slower": style.VERMILLION, "worse quality": style.VERMILLION}
"""Colour of each verdict; others are grey."""
LINE = 0.3
"""Height of an option in inches."""
LABEL = 30
"""Characters of an option's name in a line."""
WIDE = 5.0
"""Range of ratios above which only 1, 2 and 5 of each power of ten are ticks."""
FEW_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
MANY_TICKS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4)
LONGEST_BAR = 4.0
"""A step that takes more than this many times the baseline's is cut in the plot, and has its number beside it."""


def figures(results: Results, metric: str) -> list[Figure]:
    """Every plot that the runs allow."""
    shown = [
        result
        for result in (*results.options, *([results.together] if results.together else []))
        if result.ratio is not None
    ]
    if not shown:
        return []
    return [gains(shown, results, metric), parts([result for result in members(results) if result.values("step_s")])]


@style.styled
def gains(shown: Sequence[OptionResult], results: Results, metric: str) -> Figure:
    """Ratios of step times with intervals, and quality seed by seed."""
    figure = style.canvas(1.0 + LINE * len(shown))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for y, result in enumerate(shown):
        draw_ratio(left, y, result)
        color = COLORS["worse quality"] if result.changes_quality else style.MUTED
        qualities = result.values("quality")
        right.plot(qualities, [y] * len(qualities), "o", color=color, markersize=3.5, alpha=0.7)
    left.axvline(1, color=style.INK, linewidth=0.9)
    left.set_title("Time of a step over the baseline's")
    ratio_axis(left)
    plain = results.baseline.values("quality")
    if plain:
        right.axvspan(min(plain), max(plain), color=style.GRID, zorder=0)
    right.set_title(f"{metric_label(metric)} after equal samples")
    right.xaxis.set_major_locator(MaxNLocator(4))
    right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    left.set_yticks(range(len(shown)), [fill(short(result), LABEL) for result in shown])
    left.set_ylim(len(shown) - 0.5, -0.5)
    caption = (
        "Left: the geometric mean over repeats with its 95 % interval, and each repeat as a faint dot; below 1 is "
        "faster. Blue is faster, orange slower or of worse quality, grey not told apart from the baseline. Right: "
        "every seed; shaded: the range of the baseline's."
    )
    return Figure("gains", "What each option brings", caption, figure, gains_finding(results))


def ratio_axis(axes: Axes) -> None:
    """A logarithmic x axis, on which half and twice the time are equally far from 1, with plain numbers."""
    axes.set_xscale("log")
    axes.set_xlabel(style.log_label("ratio"))
    low, high = axes.get_xlim()
    ticks = FEW_TICKS if high > WIDE * low else MANY_TICKS
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def gains_finding(results: Results) -> str:
    """How many options are faster, slower and of worse quality, by the tests."""
    verdicts = [result.verdict for result in results.options if result.ratio is not None]
    said = [f"Faster than the baseline: {verdicts.count('faster')} of {counted(len(verdicts), 'option')}"]
    others = (("slower", "slower"), ("worse quality", "of worse quality"))
    said += [f"{words}: {verdicts.count(verdict)}" for verdict, words in others if verdict in verdicts]
    return "; ".join(said)


def parts_finding(shown: Sequence[OptionResult]) -> str:
    """The longest part of a step of the first of these, and its share."""
    seconds = {name: shown[0].part(name) or 0.0 for name in STEP_PARTS}
    longest, whole_s = max(seconds, key=seconds.__getitem__), sum(seconds.values())
    if not whole_s:
        return ""
    return f"{phase_words(longest)} takes {whole_percent(seconds[longest] / whole_s)} of a step of {short(shown[0])}"


def draw_ratio(axes: Axes, y: int, result: OptionResult) -> None:
    """Draw the ratio of an option with its interval and, faintly, its repeats."""
    assert result.ratio is not None
    color = COLORS.get(result.verdict, style.MUTED)
    axes.plot(result.repeat_ratios, [y] * len(result.repeat_ratios), ".", color=color, alpha=0.35)
    axes.plot(result.ratio.interval, [y, y], color=color, linewidth=1.6)
    axes.plot(result.ratio.ratio, y, "o", color=color, markersize=5.5, zorder=3)


@style.styled
def parts(shown: Sequence[OptionResult]) -> Figure:
    """Milliseconds of a step by its parts, stacked."""
    figure = style.canvas(1.1 + LINE * len(shown))
    axes = figure.subplots()
    starts = [0.0] * len(shown)
    for name in STEP_PARTS:
        widths = [1000 * (result.part(name) or 0.0) for result in shown]
        if sum(widths):
            axes.barh(range(len(shown)), widths, left=starts, height=0.62, color=style.PHASE_COLORS[name],
                      label=label(name))  # fmt: skip
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    cut = cut_long_bars(axes, starts)
    axes.set_yticks(range(len(shown)), [fill(short(result), LABEL + 8) for result in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("milliseconds of a step")
    figure.legend(loc="outside upper left", ncols=4)
    caption = "Medians of repeats, the mean over ranks; what the step does not wait for is in no part of it." + (
        " A bar with a number is cut." if cut else ""
    )
    return Figure("parts", "Where the time of a step goes", caption, figure, parts_finding(shown))


def cut_long_bars(axes: Axes, ends: Sequence[float]) -> bool:
    """End the axis at several times the first bar, the baseline's; write the length of each longer bar beside it."""
    limit = LONGEST_BAR * ends[0]
    longer = [(y, end) for y, end in enumerate(ends) if end > limit > 0]
    if longer:
        most = max(end for end in ends if end <= limit)
        axes.set_xlim(0, 1.25 * most)
        for y, end in longer:
            axes.annotate(f"{end:,.4g} ms", (1, y), (-4, 0), xycoords=("axes fraction", "data"),
                          textcoords="offset points", ha="right", va="center", fontsize=8, color="white")  # fmt: skip
    return bool(longer)
