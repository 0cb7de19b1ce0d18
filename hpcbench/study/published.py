"""The reference convergence points of MLPerf HPC, put through the fit of a study: docs/critical_batch_size.md.

The points are read from the ``mlperf_logging`` package, with the epochs of every single run. The package's checker
keeps only some of them for its test: it drops every batch smaller than the one with the fewest epochs, and points above
the line between their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, NullLocator

from hpcbench.results import style, units
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import EpochFit, fit_epochs
from staging.errors import InputError

APPLICATIONS = {"cosmoflow": "CosmoFlow", "deepcam": "DeepCAM"}
RULES = ("1.0.0", "2.0.0", "3.0.0")
PICTURE = "critical_batch_size.png"


@dataclass(frozen=True)
class Point:
    """The runs of one reference convergence point."""

    batch_size: int
    epochs: tuple[int, ...]
    """Epochs to the target of every run, ascending."""
    dropout: float | None
    weight_decay: float
    rate: float
    """The base learning rate as logged, which is the peak or the start of the warm-up (docs/schedules.md)."""

    @property
    def mean(self) -> float:
        """Mean epochs, over all runs."""
        return fmean(self.epochs)


@dataclass(frozen=True)
class Series:
    """The points of one application under rules that share them, all or those that the checker keeps."""

    application: str
    rules: tuple[str, ...]
    kept: bool
    points: tuple[Point, ...]

    @cached_property
    def fit(self) -> EpochFit:
        """The fit of all runs, which were evaluated after whole epochs."""
        return fit_epochs(
            [EpochRun(point.batch_size, epochs - 1, epochs) for point in self.points for epochs in point.epochs]
        )

    @property
    def words(self) -> str:
        """What the series holds."""
        return f"{'kept' if self.kept else 'all'}, rules {', '.join(rules.removesuffix('.0') for rules in self.rules)}"


@cache
def published_series(application: str) -> tuple[Series, ...]:
    """Every distinct set of points, in order of the versions of the rules; versions with the same points share one."""
    rules_by_points: dict[tuple[bool, tuple[Point, ...]], list[str]] = {}
    for rules in RULES:
        for kept in (False, True):
            rules_by_points.setdefault((kept, _points(application, rules, kept=kept)), []).append(rules)
    return tuple(Series(application, tuple(rules), kept, points) for (kept, points), rules in rules_by_points.items())


def latest(application: str, *, kept: bool) -> Series:
    """The series of the newest rules."""
    return next(series for series in published_series(application) if series.kept == kept and RULES[-1] in series.rules)


def _points(application: str, rules: str, *, kept: bool) -> tuple[Point, ...]:
    from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker

    checker = RCP_Checker("hpc", rules, application, verbose=False)
    return tuple(_point(record) for record in (checker.pruned_rcp_data if kept else checker.rcp_data).values())


def _point(record: dict[str, Any]) -> Point:
    values = record["Hyperparams"]
    return Point(
        batch_size=record["BS"],
        epochs=tuple(sorted(record["Epochs to converge"])),
        dropout=values.get("dropout"),
        weight_decay=values["opt_weight_decay"],
        rate=values["opt_base_learning_rate"] if "opt_base_learning_rate" in values else values["opt_lr"],
    )


def fit_table() -> str:
    """E_min and B_crit of every series, in Markdown."""
    lines = [
        "| application | points | batches | runs | E_min (epochs) | B_crit (samples) "
        "| between-seed CV | between-batch CV | p |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for application, title in APPLICATIONS.items():
        for series in published_series(application):
            fit = series.fit
            p = "below 0.0001" if fit.scatter_p < 1e-4 else f"{fit.scatter_p:.2g}"
            batches = ", ".join(str(point.batch_size) for point in series.points)
            cells = [
                title, series.words, batches, str(fit.n), units.interval(fit.e_min, fit.e_min_interval),
                units.interval(fit.b_crit, fit.b_crit_interval), units.percent(fit.spread),
                units.percent(fit.scatter), p,
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def point_table() -> str:
    """Every point of the newest rules beside the fit of all of them, in Markdown."""
    lines = [
        "| application | batch | runs | mean epochs | sd / mean | the fit | off by | kept | rate | dropout | decay |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    for application, title in APPLICATIONS.items():
        every, kept = latest(application, kept=False), latest(application, kept=True)
        for point in every.points:
            fitted = float(every.fit.predict(point.batch_size)) + every.fit.delay
            cells = [
                title, str(point.batch_size), str(len(point.epochs)), f"{point.mean:.2f}",
                units.percent(stdev(point.epochs) / point.mean), f"{fitted:.2f}",
                f"{100 * (point.mean / fitted - 1):+.0f} %", "yes" if point in kept.points else "no", f"{point.rate:g}",
                "" if point.dropout is None else f"{point.dropout:g}", f"{point.weight_decay:g}",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@style.styled
def draw() -> Canvas:
    """Epochs against batch size with both fits, a panel for each application."""
    figure = style.canvas(3.7)
    panels = figure.subplots(1, len(APPLICATIONS))
    for axes, (application, title) in zip(panels, APPLICATIONS.items(), strict=True):
        _draw_panel(axes, application)
        axes.set_title(title)
        axes.set_xlabel(style.log_label("global batch size"))
    panels[0].set_ylabel("epochs to target")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4)
    return figure


def _draw_panel(axes: Axes, application: str) -> None:
    every, kept = latest(application, kept=False), latest(application, kept=True)
    sizes = [point.batch_size for point in every.points]
    batch = np.geomspace(min(sizes) / 1.25, max(sizes) * 1.25, 200)
    for series, color, dash, name in (
        (every, style.BLUE, "-", "all points"),
        (kept, style.VERMILLION, "--", "kept points"),
    ):
        fit = series.fit
        axes.plot(batch, fit.predict(batch), color=color, linestyle=dash, zorder=2, label=f"fit of {name}")
        if fit.lines is not None:
            axes.fill_between(batch, *fit.band(batch), color=color, alpha=0.12, linewidth=0, zorder=1,
                              label=f"95 % band of {name}")  # fmt: skip
    for point in every.points:
        epochs, runs = np.unique(point.epochs, return_counts=True)
        axes.scatter(np.full(len(epochs), point.batch_size), epochs, s=9 * runs, color=style.FAINT, alpha=0.7, zorder=3,
                     linewidth=0, label="runs (area: how many)" if point is every.points[0] else None)  # fmt: skip
        filled = point in kept.points
        axes.plot(point.batch_size, point.mean, "o", markersize=5.5, color=style.INK, zorder=4,
                  markerfacecolor=style.INK if filled else "white",
                  label="mean (filled: kept)" if point is every.points[0] else None)  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(size) for size in sizes])
    axes.set_ylim(0, 1.25 * max(max(point.epochs) for point in every.points))


def write_published(folder: Path) -> Path:
    """Write the picture into ``folder`` and return its path. Raises ``InputError`` if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return style.save(draw(), folder / PICTURE)
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}); give another folder") from error
