"""Plots of a ranking: what makes each entry slower than the base, and the steps from one time to another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter

from hpcbench.analysis.comparable import why_not_comparable
from hpcbench.analysis.decomposition import TERMS, Decomposition, Term
from hpcbench.analysis.figure_findings import decomposition_finding, pair_finding
from hpcbench.analysis.machine_names import Labels
from hpcbench.analysis.plot_parts import TERM_COLORS, log_axis, note_own
from hpcbench.analysis.ranking import MINUTE_S, Ranking
from hpcbench.application_names import application_name
from hpcbench.results import style, units
from hpcbench.results.plots import Figure, by_row

FACTORS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SMALLEST = 5e-4
"""Terms whose logarithms are below this everywhere are not drawn."""
MOST_WATERFALLS = 2


@style.styled
def decomposition(ranking: Ranking, labels: Labels) -> Figure | None:
    """Stacked logarithms of the factors of every entry against the base."""
    pairs = ranking.against
    if not pairs:
        return None
    terms = drawn_terms(pairs)
    figure = style.canvas(1.35 + 0.225 * len(pairs) + 0.2 * -(-len(terms) // 4))
    axes = figure.subplots()
    draw_terms(axes, pairs, terms)
    axes.axvline(0, color=style.INK, linewidth=0.8)
    factor_axis(axes)
    what = "time per model" if ranking.mode == "throughput" else "time to train"
    minutes = units.significant((ranking.base.score_s or 0.0) / MINUTE_S)
    base = f"{labels[ranking.base.identity]} ({minutes} min)"
    axes.set_xlabel(style.log_label(f"factor of the {what} of {base}"))
    axes.set_yticks(range(len(pairs)), [labels[pair.a.identity] for pair in pairs])
    for tick, pair in zip(axes.get_yticklabels(), pairs, strict=True):
        tick.set_color(style.FAINT if why_not_comparable(pair.a, pair.b) else style.INK)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    handles: list[Patch | Line2D] = [Patch(color=TERM_COLORS[term.name], label=term.label) for term in terms]
    handles.append(Line2D([], [], color=style.INK, marker="D", linestyle="none", markersize=4, label="all together"))
    figure.legend(handles=by_row(handles, 4), loc="outside upper left", ncols=4, handlelength=1, handleheight=1)
    note_own(figure, ranking.entries)
    faint = any(why_not_comparable(pair.a, pair.b) for pair in pairs)
    caption = (
        "Logarithms of the factors, which add up to that of the ratio exactly: to the right what makes an entry slower "
        "than the base, to the left what makes it faster; the diamond is the ratio itself. "
        "Published entries are of the closed division unless they are named open."
        + (" Names in grey: not results of one benchmark, see the table." if faint else "")
    )
    title, finding = f"{title_of(ranking)}: why slower", decomposition_finding(pairs)
    return Figure(f"{ranking.slug}-decomposition", title, caption, figure, finding)


def draw_terms(axes: Axes, pairs: Sequence[Decomposition], terms: Sequence[Term]) -> None:
    """Draw the bars of all pairs, with one call for each term and side, and the diamonds."""
    rows = np.arange(len(pairs))
    for negative in (True, False):
        start = np.zeros(len(pairs))
        for term in terms:
            values = np.array([pair.terms.get(term.name, 0.0) for pair in pairs])
            values = np.minimum(values, 0) if negative else np.maximum(values, 0)
            axes.barh(
                rows, values, left=start, height=0.72, color=TERM_COLORS[term.name], edgecolor="white", linewidth=0.4
            )
            start += values
    totals = [pair.total for pair in pairs]
    axes.plot(totals, rows, "D", color=style.INK, markersize=4, markeredgecolor="white", markeredgewidth=0.6, zorder=5)


def title_of(ranking: Ranking) -> str:
    """Application and mode."""
    return f"{application_name(ranking.application)}, {ranking.mode}"


def drawn_terms(pairs: Sequence[Decomposition]) -> list[Term]:
    """Terms that are visible in at least one pair."""
    return [term for term in TERMS if any(abs(pair.terms.get(term.name, 0.0)) > SMALLEST for pair in pairs)]


def factor_axis(axes: Axes) -> None:
    """Label an axis of logarithms with factors."""
    low, high = axes.get_xlim()
    ticks = [factor for factor in FACTORS if low <= math.log(factor) <= high]
    step = 2 if len(ticks) > 9 else 1
    middle = ticks.index(1)
    ticks = [tick for place, tick in enumerate(ticks) if (place - middle) % step == 0]
    if len(ticks) < 4:
        ticks = [factor for factor in (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2) if low <= math.log(factor) <= high]
    axes.xaxis.set_major_locator(FixedLocator([math.log(factor) for factor in ticks]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: factor_words(math.exp(value))))


def factor_words(factor: float) -> str:
    """``x 4`` or ``x 1/4``."""
    if factor >= 0.99 or round(1 / factor) - 1 / factor > 1e-6 or abs(1 / factor - round(1 / factor)) > 1e-6:
        return f"×{factor:.3g}"
    return f"×1/{round(1 / factor)}"


def chosen_pairs(ranking: Ranking, against: str | None = None) -> list[Decomposition]:
    """The pairs of the waterfalls: ``against`` alone, else those next in the ranking, comparable ones first."""
    if against is not None:
        return [pair for pair in ranking.against if pair.a.name == against]
    ordered = sorted(ranking.against, key=lambda pair: bool(why_not_comparable(pair.a, pair.b)))
    return ordered[:MOST_WATERFALLS]


@style.styled
def waterfall(ranking: Ranking, labels: Labels, against: str | None = None) -> Figure | None:
    """The steps from the base's time to that of others, factor by factor."""
    pairs = chosen_pairs(ranking, against)
    if not pairs:
        return None
    terms = drawn_terms(pairs)
    figure = style.canvas(1.15 + 0.27 * (len(terms) + 2))
    panels = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
    for axes, pair in zip(panels, pairs, strict=True):
        draw_waterfall(axes, pair, terms, labels)
    panels[0].set_yticks(range(len(terms) + 2), ["base", *(term.label for term in terms), "the other"], color=style.INK)
    panels[0].set_ylim(len(terms) + 1.6, -0.6)
    note_own(figure, [entry for pair in pairs for entry in (pair.a, pair.b)])
    what = "time per model" if ranking.mode == "throughput" else "time to train"
    caption = (
        f"From the {what} of the base at the top to that of another entry at the bottom: each factor multiplies what "
        "is above it. Bars in the colours of the plot above; numbers are the factors."
    )
    title, finding = f"{title_of(ranking)}: from one time to the other", pair_finding(pairs[0], labels)
    return Figure(f"{ranking.slug}-waterfall", title, caption, figure, finding)


def draw_waterfall(axes: Axes, pair: Decomposition, terms: Sequence[Term], labels: Labels) -> None:
    """Draw one pair: a bar for each factor, from the time before it to the time after it, on a logarithmic axis."""
    start = (pair.b.score_s or 1.0) / MINUTE_S
    times = [start]
    for term in terms:
        times.append(times[-1] * math.exp(pair.terms.get(term.name, 0.0)))
    end = start * pair.ratio
    low = min(*times, end) / 1.6
    ends = [(0, start), (len(terms) + 1, end)]
    axes.barh(
        [row for row, _ in ends], [time - low for _, time in ends], left=low, height=0.66, color=style.COLORS["pale"]
    )
    for row, time in ends:
        axes.annotate(f"{units.significant(time)} min", (time, row), (4, 0), textcoords="offset points", va="center",
                      fontsize=8.5, fontweight="bold")  # fmt: skip
    for row, (term, before, after) in enumerate(zip(terms, times, times[1:], strict=False), 1):
        axes.barh(row, after - before, left=before, height=0.66, color=TERM_COLORS[term.name])
        axes.annotate(f"×{units.significant(after / before)}", (max(before, after), row), (4, 0), va="center",
                      textcoords="offset points", fontsize=8.5)  # fmt: skip
        axes.plot([after, after], [row, row + 1], color=style.FAINT, linewidth=0.6, zorder=0.9)
    axes.set_xlim(low, max(*times, end) * (max(*times, end) / low) ** 0.16)
    log_axis(axes, "x", "minutes per model" if pair.a.throughput else "minutes")
    axes.set_title(f"{labels[pair.b.identity]}\nto {labels[pair.a.identity]}", fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
