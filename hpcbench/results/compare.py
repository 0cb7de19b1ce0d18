"""Several runs side by side: tables of ratios, and plots."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.results import comparable, style, units
from hpcbench.results.attempts import is_cut
from hpcbench.results.fastest import finding
from hpcbench.results.figure_findings import compared_phases_finding, compared_quality_finding
from hpcbench.results.phase_table import mean_seconds
from hpcbench.results.plots import Figure, draw_levels, epoch_axis, metric_label, seconds_axis, words
from hpcbench.results.records import Run
from hpcbench.results.summary import Summary
from hpcbench.results.tables import verdict


def run_names(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: as many last parts of its path as tell the runs apart."""
    parts = [run.folder.path.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part[-1:])} ({number})" for number, part in enumerate(parts, 1)]


def color(index: int) -> str:
    """The colour of a run, by its position."""
    return style.SERIES[index % len(style.SERIES)]


def ratio(value: float | None, reference: float | None) -> str:
    """``value / reference`` as text: ``1.94``."""
    if value is None or not reference:
        return units.MISSING
    return units.significant(value / reference)


def group(runs: Mapping[str, Run], folder: Path) -> dict[str, Any]:
    """The tables of one application's runs by name, for a page that lies in ``folder``."""
    first_name, first = next(iter(runs.items()))
    rows, ratios, machines = [], [], []
    for index, (name, run) in enumerate(runs.items()):
        s, f = run.summary, first.summary
        rows.append({
            "run": name, "color": color(index), "link": _link(run, folder), "preset": s.preset,
            "ranks": f"{s.world_size:,}{s.splitting}{s.simulating}", "batch": units.integer(s.global_batch_size),
            "seed": str(s.seed),
            "reached": verdict(s.status, s.target), "quality": units.score(run.quality),
            "epochs": units.epochs(s.epochs), "rate": units.significant(s.samples_per_s),
            "time": units.duration(s.time_to_solution_s) if run.reached else units.MISSING,
        })  # fmt: skip
        is_one = not comparable.differences([run, first])
        per_rank = [None if x.samples_per_s is None else x.samples_per_s / x.world_size for x in (s, f)]
        solved = is_one and run.reached and first.reached and s.target == f.target
        ratios.append({
            "run": name, "epochs": ratio(s.epochs, f.epochs) if solved else units.MISSING,
            "rate": ratio(s.samples_per_s, f.samples_per_s) if is_one else units.MISSING,
            "rank_rate": ratio(*per_rank) if is_one else units.MISSING,
            "time": ratio(s.time_to_solution_s, f.time_to_solution_s) if solved else units.MISSING,
        })  # fmt: skip
        machines.append({
            "run": name, "device": s.device, "nodes": units.integer(s.nodes), "ranks": units.integer(s.ranks_per_node),
            "threads": units.integer(s.threads), "precision": s.precision,
            "energy": units.prefixed(s.energy_j, "J"), "sample_energy": units.prefixed(sample_energy(s), "J"),
        })  # fmt: skip
    return {
        "application": first.summary.application, "title": first.summary.title, "rows": rows, "first": first_name,
        "metric": metric_label(first.summary.metric), "ratios": ratios if len(runs) > 1 else [],
        "machines": machines, "finding": finding(runs), "caveat": comparable.caveat(runs),
    }  # fmt: skip


def sample_energy(s: Summary) -> float | None:
    """Joules per training sample, of all that the run took between start and stop.

    ``None`` if energy was not read, or covers fewer samples, since it ends at a checkpoint.
    """
    return s.energy_j / s.samples if s.energy_j is not None and s.samples and not is_cut(s.energy_note) else None


def _link(run: Run, folder: Path) -> str:
    """The run's own page, relative to ``folder``."""
    return Path(os.path.relpath(run.folder.report.resolve(), folder.resolve())).as_posix()


def figures(runs: Mapping[str, Run]) -> list[Figure]:
    """Quality and phases of one application's runs by name."""
    return [figure for draw in (quality, phases) if (figure := draw(runs)) is not None]


@style.styled
def quality(runs: Mapping[str, Run]) -> Figure | None:
    """The validation metric of every run against epochs and against time."""
    first = next(iter(runs.values())).summary
    drawn = {
        name: run for name, run in runs.items() if not run.epochs.empty and first.metric in run.epochs
    }  # a run that was aborted early has no epoch to draw
    if not drawn:
        return None
    figure = style.canvas(3.4)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column in zip(panels, ("epoch", "elapsed_s"), strict=True):
        for index, (name, run) in enumerate(runs.items()):
            if name in drawn:
                axes.plot(run.epochs[column], run.epochs[first.metric], color=color(index), marker="o", markersize=3,
                          linewidth=1.4, label=name)  # fmt: skip
    targets = sorted({run.summary.target for run in runs.values() if run.summary.target is not None})
    draw_levels(panels, [(target, f"{units.score(target)} target", style.MUTED, "--") for target in targets])
    panels[0].set_ylabel(f"validation {metric_label(first.metric)}")
    panels[0].set_xlabel("epoch")
    epoch_axis(panels[0], [number for run in drawn.values() for number in run.epochs["epoch"]], 8)
    panels[1].set_xlim(left=0)
    seconds_axis(panels[1], max(float(run.epochs["elapsed_s"].max()) for run in drawn.values()))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
    title = f"Validation {metric_label(first.metric)}"
    caption = f"Left, how many epochs each run needs; right, how long that takes. {comparable.caveat(runs)}".rstrip()
    return Figure(f"{first.application}-quality", title, caption, figure, compared_quality_finding(runs))


@style.styled
def phases(runs: Mapping[str, Run]) -> Figure | None:
    """Seconds of every phase, of several ranks the means, as a stacked bar for each run."""
    seconds = {name: mean_seconds(run) for name, run in runs.items()}
    shown = [
        phase
        for phase in next(iter(seconds.values()))
        if any(by_phase.get(phase, 0) > 0 for by_phase in seconds.values())
    ]
    longest = max(sum(by_phase.values()) for by_phase in seconds.values())
    if not longest:
        return None
    figure = style.canvas(1.25 + 0.34 * len(runs))
    axes = figure.subplots()
    left = [0.0] * len(runs)
    for phase in shown:
        values = [by_phase.get(phase, 0.0) for by_phase in seconds.values()]
        axes.barh(range(len(runs)), values, left=left, height=0.66, color=style.PHASE_COLORS.get(phase, style.FAINT),
                  edgecolor="white", linewidth=0.6, label=words(phase))  # fmt: skip
        left = [start + value for start, value in zip(left, values, strict=True)]
    for row, total in enumerate(left):
        axes.annotate(
            units.duration(total), (total, row), (5, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    axes.set_yticks(range(len(runs)), list(seconds), color=style.INK)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.12)
    axes.grid(visible=False, axis="y")
    seconds_axis(axes, longest)
    axes.set_xlabel(axes.get_xlabel().replace("time since the start of the run", "wall time, summed by phase"))
    figure.legend(loc="outside upper left", ncols=5, handlelength=1, handleheight=1)
    application = next(iter(runs.values())).summary.application
    return Figure(
        f"{application}-phases",
        "Where the time went",
        "Phases exclude one another; for several ranks, each is the mean over them, and a bar is their mean wall time.",
        figure,
        compared_phases_finding(seconds),
    )
