"""The plots of a run and of several: quality, training loss, phases and throughput."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatter, MaxNLocator

from hpcbench.results import style, units
from hpcbench.results.figure_findings import (
    loss_finding,
    noise_scale_finding,
    phases_finding,
    quality_finding,
    throughput_finding,
)
from hpcbench.results.phase_table import median_seconds, whole_seconds
from hpcbench.results.records import Run

T = TypeVar("T")
Level = tuple[float, str, str, str]
"""A horizontal line: value, text, colour, dash."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A plot with its title and caption; ``name`` is its id on a page and its file name."""

    name: str
    title: str
    caption: str
    figure: Canvas
    finding: str = ""
    """What the plot shows, as a sentence without its full stop; empty where nothing can be said."""

    @property
    def alternative(self) -> str:
        """The text that takes the place of the plot where it cannot be seen: its title and its finding."""
        if not self.finding:
            return self.title
        return f"{self.title}{' ' if self.title.endswith('?') else ': '}{self.finding}"


def words(name: str) -> str:
    """A key in plain words: ``input_wait`` is ``input wait``."""
    return name.replace("_", " ")


def metric_label(name: str) -> str:
    """A metric's name as an axis shows it: ``mae`` is ``MAE``, ``val_loss`` is ``val loss``."""
    return "IoU" if name == "iou" else name.upper() if len(name) <= 4 else words(name)


def spread(values: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Positions near ``values``, at least ``gap`` apart and in the same order, inside [low, high] where they fit."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    placed = [values[index] for index in order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    ceiling = high
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    shift = max(0.0, low - placed[0]) if placed else 0.0
    result = [0.0] * len(values)
    for position, index in zip(placed, order, strict=True):
        result[index] = position + shift
    return result


def smooth(values: Floats, span: int) -> Floats:
    """Exponentially weighted mean over about ``span`` values, corrected for its start."""
    mean: Floats = pd.Series(values).ewm(span=span, adjust=True).mean().to_numpy()
    return mean


def seconds_axis(axes: Axes, longest: float) -> None:
    """Label the x axis as elapsed time, in the unit that suits ``longest`` seconds."""
    unit, factor = ("s", 1.0) if longest < 300 else ("min", 60.0) if longest < 3 * 3600 else ("h", 3600.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 1.2, 1.5, 2, 3, 6, 10] if factor > 1 else [1, 2, 2.5, 5, 10]))
    axes.set_xlabel(f"time since the start of the run ({unit})")


def _levels(run: Run) -> list[Level]:
    """The horizontal lines of a quality plot: value, text, colour, dash."""
    target = run.summary.target
    levels = [] if target is None else [(float(target), f"{units.score(target)} target", style.VERMILLION, "-")]
    for name, value in run.baseline_scores().items():
        levels.append((value, fill(f"{units.score(value)} {words(name)}", 22), style.MUTED, "--"))
    return levels


def draw_levels(panels: Sequence[Axes], levels: Sequence[Level]) -> None:
    """Draw the lines on all panels and write their names, without overlap, to the right of the last."""
    for axes in panels:
        for value, _, color, dash in levels:
            axes.axhline(value, color=color, linestyle=dash, linewidth=1.1, zorder=1.5)
    last = panels[-1]
    low, high = last.get_ylim()
    at = [(value - low) / (high - low) for value, *_ in levels]
    gap = 0.065 * max((text.count("\n") + 1 for _, text, *_ in levels), default=1)
    for wanted, position, (_, text, color, _) in zip(at, spread(at, gap), levels, strict=True):
        last.annotate(
            text, (1.0, wanted), (1.03, position), xycoords="axes fraction", textcoords="axes fraction",
            color=color, va="center", fontsize=8.5, linespacing=1.05, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0},
        )  # fmt: skip


def epoch_axis(axes: Axes, epochs: Iterable[float], bins: int) -> None:
    """Set at most ``bins`` ticks, at whole epochs or, where ``epochs`` are fractional and span only a few, at parts."""
    distinct = sorted(set(epochs))
    few = distinct[-1] - distinct[0] < 3 and any(number % 1 for number in distinct)
    if few and len(distinct) <= bins:
        axes.xaxis.set_major_locator(FixedLocator(distinct))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=not few, nbins=bins, min_n_ticks=1))


@style.styled
def quality(run: Run) -> Figure | None:
    """The validation metric against epochs and against time, with the target and the baselines as labelled lines."""
    metric = run.summary.metric
    if run.epochs.empty or metric not in run.epochs:
        return None
    figure = style.canvas(3.1)
    left, right = figure.subplots(1, 2, sharey=True)
    scores = run.epochs[metric]
    for axes, column in ((left, "epoch"), (right, "elapsed_s")):
        axes.plot(run.epochs[column], scores, color=style.BLUE, marker="o", markersize=3.2, zorder=3, clip_on=False)
        axes.margins(x=0.03)
        if run.reached:
            axes.plot(run.epochs[column].iloc[-1], scores.iloc[-1], "o", color=style.BLUE, markersize=7, zorder=4)
    levels = _levels(run)
    everything = [*scores, *[value for value, *_ in levels]]
    margin = 0.08 * (max(everything) - min(everything) or 1.0)
    left.set_ylim(min(everything) - margin, max(everything) + margin)
    draw_levels((left, right), levels)
    left.set_ylabel(f"validation {metric_label(metric)}")
    left.set_xlabel("epoch")
    epoch_axis(left, run.epochs["epoch"], 8)
    right.set_xlim(left=0)
    seconds_axis(right, float(run.epochs["elapsed_s"].max()))
    direction = "Lower" if run.lower_is_better else "Higher"
    often = "after parts of every epoch" if run.within_epochs else "after every epoch"
    caption = (
        f"{direction} is better. The metric over the whole validation set {often}, against epochs (left) and "
        "against the clock that starts when the data are first touched (right)."
    )
    if run.baseline_scores():
        caption += " Dashed: what the baselines score."
    return Figure("quality", f"Validation {metric_label(metric)}", caption, figure, quality_finding(run))


@style.styled
def training_loss(run: Run) -> Figure | None:
    """Training loss of every optimizer step, raw and smoothed, above the learning rate."""
    if run.steps.empty:
        return None
    step, loss = run.steps["step"].to_numpy(), run.steps["loss"].to_numpy(dtype=np.float64)
    figure = style.canvas(3.4)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 1])
    span = max(5, len(loss) // 40)
    upper.plot(step, loss, color=style.SKY, linewidth=0.7, alpha=0.65, label="each step")
    smoothed = smooth(loss, span)
    upper.plot(step, smoothed, color=style.BLUE, label=f"smoothed over about {span} steps")
    positive = loss[np.isfinite(loss) & (loss > 0)]
    wide = len(positive) == len(loss) and positive.max() > 30 * positive.min()
    upper.set_yscale("log" if wide else "linear")
    upper.set_ylabel(style.log_label("training loss") if wide else "training loss")
    upper.legend(loc="upper right")
    upper.margins(x=0.01)
    lower.plot(step, run.steps["lr"], color=style.ORANGE, linewidth=1.4, drawstyle="steps-post")
    lower.set_ylabel("learning rate")
    lower.set_ylim(0, float(run.steps["lr"].max()) * 1.15 or 1)
    lower.yaxis.set_major_locator(MaxNLocator(3))
    lower.set_xlabel("optimizer step")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 2.5, 5, 10]))
    figure.align_ylabels()
    batch = run.summary.global_batch_size
    caption = f"One optimizer step takes {units.counted(batch, 'sample')}." if batch else ""
    return Figure("loss", "Training loss and learning rate", caption, figure, loss_finding(smoothed.tolist()))


def by_row(items: Sequence[T], columns: int) -> list[T]:
    """``items`` in the order in which a legend of ``columns`` columns shows them by row; a legend fills by column."""
    return [item for column in range(columns) for item in items[column::columns]]


@style.styled
def phases(run: Run) -> Figure | None:
    """Where the time went: one stacked bar with the seconds and the share of every phase."""
    seconds = {name: value for name, value in median_seconds(run).items() if value > 0}
    total = sum(seconds.values())
    if not total:
        return None
    figure = style.canvas(1.15 + 0.2 * -(-len(seconds) // 3))
    axes = figure.subplots()
    whole, start, digits = whole_seconds(run), 0.0, 2 if total < 100 else 1 if total < 1000 else 0
    for name, value in seconds.items():
        label = f"{words(name)}\u2002{value:.{digits}f} s\u2002{units.percent(value / whole)}"
        color = style.PHASE_COLORS.get(name, style.FAINT)
        (bar,) = axes.barh(0, value, left=start, height=1, color=color, edgecolor="white", linewidth=0.8)
        bar.set_label(label)
        if value > 0.09 * total:
            dark = color in style.DARK
            axes.text(start + value / 2, 0, f"{100 * value / whole:.0f} %", ha="center", va="center",
                      color="white" if dark else style.INK, fontsize=9, fontweight="bold")  # fmt: skip
        start += value
    axes.set_xlim(0, total)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    seconds_axis(axes, total)
    axes.set_xlabel(axes.get_xlabel().replace("time since the start of the run", "wall time, summed by phase"))
    handles = by_row(
        [bar for bar, value in zip(axes.patches, seconds.values(), strict=True) if value > 5e-4 * total], 3
    )
    figure.legend(handles=handles, loc="outside upper left", ncols=3, handlelength=1, handleheight=1, columnspacing=2.2)
    several = run.summary.world_size > 1 and run.folder.ranks.exists()
    process = "processes of all attempts" if run.summary.resumed else "process"
    caption = (
        f"Phases exclude one another{'' if several else f' and add up to the wall time of the {process}'}; "
        "communication counts only where computation did not hide it."
    )
    caption += " For every phase, the median over ranks, as a share of the median wall time." if several else ""
    return Figure("phases", "Phases of the run", caption, figure, phases_finding(seconds, whole))


@style.styled
def throughput(run: Run) -> Figure | None:
    """Training samples per second in every epoch, with the median that the summary gives."""
    if run.epochs.empty or "samples_per_s" not in run.epochs:
        return None
    epoch, rate = run.epochs["epoch"], run.epochs["samples_per_s"]
    figure = style.canvas(2.3)
    axes = figure.subplots()
    colors = [style.FAINT, *[style.BLUE] * (len(rate) - 1)] if len(rate) > 1 else [style.BLUE]
    apart = float(min([*epoch.diff().dropna(), epoch.iloc[0]]))
    axes.bar(epoch, rate, width=0.72 * apart, color=colors)
    median = run.summary.samples_per_s
    if median is not None:
        axes.axhline(median, color=style.INK, linewidth=1.1)
        axes.annotate(f"median {units.significant(median)}", (1.0, median), (4, 0), xycoords=("axes fraction", "data"),
                      textcoords="offset points", va="center", fontsize=8.5, annotation_clip=False)  # fmt: skip
    axes.set_xlabel("epoch")
    axes.set_ylabel("training samples/s")
    epoch_axis(axes, epoch, 12)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(float(epoch.min()) - 0.6 * apart, float(epoch.max()) + 0.6 * apart)
    first = "first part of an epoch" if run.within_epochs else "first epoch"
    caption = f"The {first} (grey) holds warm-up and is left out of the median." if len(rate) > 1 else ""
    return Figure("throughput", "Throughput of training", caption, figure, throughput_finding(run))


@style.styled
def noise_scale(run: Run) -> Figure | None:
    """The gradient noise scale while the run trained, that of the whole run, and the batch of the run."""
    if not run.folder.noise_scale.exists():
        return None
    table = run.folder.read_noise_scale()
    measured = table[table["b_simple"] > 0]
    if measured.empty:
        return None
    figure = style.canvas(2.6)
    axes = figure.subplots()
    axes.plot(measured["step"], measured["b_simple"], color=style.BLUE)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.4)))
    levels: list[Level] = [(float(run.summary.global_batch_size), "batch of the run", style.MUTED, "--")]
    if run.summary.noise_scale is not None:
        levels.append(
            (run.summary.noise_scale, f"whole run {units.significant(run.summary.noise_scale)}", style.INK, "-")
        )
    for value, text, color, dash in levels:
        axes.axhline(value, color=color, linestyle=dash, linewidth=1.1, zorder=1.5)
        axes.annotate(text, (1.0, value), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      color=color, va="center", fontsize=8.5, annotation_clip=False)  # fmt: skip
    axes.set_ylabel(style.log_label("noise scale (samples)"))
    axes.set_xlabel("optimizer step")
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 2.5, 5, 10]))
    caption = (
        "The covariance of the gradients of single samples over the square of their mean, from the norms of gradients "
        "of parts of a step and of the whole step. The curve is an exponential average. A batch far above it takes "
        "more epochs, one far below it no fewer."
    )
    return Figure("noise_scale", "Gradient noise scale", caption, figure, noise_scale_finding(run))


def run_figures(run: Run) -> list[Figure]:
    """Every plot of the run's tables that its files allow; ``phases`` draws its summary."""
    draws = (quality, training_loss, noise_scale, throughput)
    return [figure for draw in draws if (figure := draw(run)) is not None]
