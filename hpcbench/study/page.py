"""The page of a convergence study, and the files beside it: results.csv, table.txt and the plots."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.measure.ratio_of_sums import LEAST_BLOCKS, RatioOfSums, ratio_of_sums
from hpcbench.results import style, units
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure, metric_label
from hpcbench.results.records import Run
from hpcbench.results.report import Drawn, write_page
from hpcbench.results.run_folder import write_atomic
from hpcbench.results.tables import WIDTH
from hpcbench.study import curve_plots, plots
from hpcbench.study.definition import Study
from hpcbench.study.epoch_run import LEAST_BATCHES
from hpcbench.study.figure_findings import headline
from hpcbench.study.findings import findings
from hpcbench.study.fit import EpochFit, fit_epochs
from hpcbench.study.folder import StudyFolder
from hpcbench.study.layer_plots import layers
from hpcbench.study.results import Row, read_curves, read_rows, results_frame, runs_needed, series, series_to_fit
from hpcbench.study.run_status import RunStatus
from hpcbench.study.seed_spread import spread_interval
from hpcbench.study.series_comparison import SeriesComparison, compare_series, comparison_cells, comparison_lines
from hpcbench.study.table import counts, failures, mean, notes, ratio, reached_words, results_table, short, size
from hpcbench.study.trajectories import mark_copies


@dataclass(frozen=True)
class Machine:
    """The speed for which times to solution are given, in samples per second and rank, and its description."""

    speed: float
    words: str


def write_study(study: Study, folder: StudyFolder, statuses: Mapping[str, RunStatus]) -> str:
    """Write tables, plots and page from the run folders; returns the text of ``table.txt``."""
    rows = read_rows(study, statuses)
    curves = read_curves(folder, rows)
    rows = mark_copies(rows, curves)
    compared, fits, scales = compare_series(rows), fit_series(rows), pooled_noise_scales(rows, curves)
    drawn = figures(study, rows, fits, curves)
    for figure in drawn:
        style.save_in_study(figure.figure, folder.path / f"{figure.name}.png")
    write_atomic(folder.results, results_frame(study, statuses, rows).to_csv(index=False))
    lines = [f"{NOT_VERIFIED}.", *wrapped(notes(study, rows)), *comparison_lines(compared), *fit_lines(fits, scales)]
    text = "\n".join([results_table(rows), "", *lines])
    write_atomic(folder.table, text + "\n")
    write_page(folder.page, study_page(study, statuses, rows, compared, fits, scales, drawn))
    return text


def wrapped(lines: Sequence[str]) -> list[str]:
    """Each note in lines of at most 100 columns."""
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ")]


def figures(study: Study, rows: Sequence[Row], fits: Mapping[str, EpochFit], curves: Mapping[str, Run]) -> list[Figure]:
    """Every plot that the runs allow."""
    machine = machine_of(study, rows)
    drawn = [
        plots.epochs(study, rows, fits),
        plots.samples_and_steps(study, rows),
        None if machine is None else plots.time_to_solution(study, rows, machine.speed, machine.words),
        curve_plots.quality(study, rows, curves),
        curve_plots.search(study, rows),
        layers(study, rows, curves),
    ]
    return [figure for figure in drawn if figure is not None]


def fit_series(rows: Sequence[Row]) -> dict[str, EpochFit]:
    """The fit of every series that reached the target at three batches or more."""
    return {
        label: fit_epochs([run for row in members for run in row.epoch_runs])
        for label, (members, reached) in series_to_fit(rows).items()
        if reached >= LEAST_BATCHES
    }


def fit_cells(fits: Mapping[str, EpochFit], scales: Mapping[str, RatioOfSums]) -> list[dict[str, str]]:
    """E_min and B_crit of every series with their intervals, the noise scale, and what a reader must know."""
    cells = []
    for label, fit in fits.items():
        scale = scales.get(label)
        cells.append({
            "series": label, "e_min": units.interval(fit.e_min, fit.e_min_interval),
            "b_crit": units.interval(fit.b_crit, fit.b_crit_interval), "runs": str(fit.n),
            "noise_scale": units.MISSING if scale is None else units.interval(scale.value, (scale.low, scale.high)),
            "note": fit.note,
        })  # fmt: skip
    return cells


def pooled_noise_scales(rows: Sequence[Row], curves: Mapping[str, Run]) -> dict[str, RatioOfSums]:
    """The gradient noise scale of every series: the ratio of sums over all of its runs that measured it.

    Runs that diverged or failed are left out: a few gradients of a run that breaks down would be most of the sums.
    Runs are independent, so the interval comes from their sums; with fewer than three runs, from blocks of steps.
    """
    scales = {}
    for label, members in series(rows).items():
        tables = [
            curves[run.name].folder.read_noise_scale()
            for row in members
            for run, state in row.distinct
            if state.done and run.name in curves and curves[run.name].folder.noise_scale.exists()
        ]
        tables = [table for table in tables if not table.empty]
        pairs = [(table["tr_sigma"].to_numpy(), table["gradient_sq"].to_numpy()) for table in tables]
        sums = [(above.sum(), below.sum()) for above, below in pairs]
        pooled = sums if len(sums) >= LEAST_BLOCKS else [values for pair in pairs for values in zip(*pair, strict=True)]
        scale = ratio_of_sums([above for above, _ in pooled], [below for _, below in pooled])
        if scale is not None:
            scales[label] = scale
    return scales


def fit_lines(fits: Mapping[str, EpochFit], scales: Mapping[str, RatioOfSums]) -> list[str]:
    """The fits as lines of text."""
    cells = fit_cells(fits, scales)
    lines = ["", "Fit of epochs(B) = E_min (1 + B / B_crit), with 95 % intervals:"] if cells else []
    for texts in cells:
        scale = "" if texts["noise_scale"] == units.MISSING else f", noise scale {texts['noise_scale']}"
        lines.append(f"  {texts['series']}: E_min {texts['e_min']}, B_crit {texts['b_crit']}{scale}")
        lines += textwrap.wrap(texts["note"], WIDTH, initial_indent="    ", subsequent_indent="    ")
    return lines


def machine_of(study: Study, rows: Sequence[Row]) -> Machine | None:
    """The machine that was asked for, otherwise one whose ranks are as fast as the median run was here."""
    efficiency = "" if study.parallel_efficiency == 1 else f" x {study.parallel_efficiency:g} parallel efficiency"
    efficiency = efficiency or ", at a parallel efficiency of 1"
    if study.samples_per_s_per_rank:
        speed = study.samples_per_s_per_rank
        return Machine(speed, f"{units.significant(speed)} samples/s per rank{efficiency}")
    measured = [
        state.summary.samples_per_s
        for row in rows
        for _, state in row.runs
        if state.summary is not None and state.summary.samples_per_s
    ]
    if not measured:
        return None
    speed = median(measured)
    return Machine(speed, f"{units.significant(speed)} samples/s per rank (the median of these runs){efficiency}")


def study_page(
    study: Study, statuses: Mapping[str, RunStatus], rows: Sequence[Row], compared: Sequence[SeriesComparison],
    fits: Mapping[str, EpochFit], scales: Mapping[str, RatioOfSums], drawn: Sequence[Figure],
) -> str:  # fmt: skip
    """The page as HTML text."""
    first = next((state.summary for state in statuses.values() if state.summary is not None), None)
    done = counts(study, statuses)
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.study"), PackageLoader("hpcbench.results")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    heading = headline(rows, compared) or "Epochs to target against batch size"
    return environment.get_template("study.html").render(
        version=__version__,
        page_title=f"{study.application} {study.preset}: {heading}",
        heading=heading,
        study=study,
        title=first.title if first else "",
        date=first.started[:10] if first else "",
        tiles=tiles(study, statuses, rows, done),
        findings=findings(rows, compared),
        comparisons=comparison_cells(compared),
        rows=[row_cells(study, row) for row in rows],
        notes=notes(study, rows),
        fits=fit_cells(fits, scales),
        figures={figure.name: Drawn.of(figure) for figure in drawn},
        metric="" if first is None else metric_label(first.metric),
        failures=failures(study, statuses),
        left=done["left"],
        size=size(study),
    )


def tiles(
    study: Study, statuses: Mapping[str, RunStatus], rows: Sequence[Row], done: Mapping[str, int]
) -> list[dict[str, str]]:
    """The numbers at the top of the page."""
    summaries = [state.summary for state in statuses.values() if state.summary is not None]
    made = sum(count for name, count in done.items() if name != "left")
    core_s = sum(s.wall_s * s.threads * s.world_size for s in summaries)
    first = summaries[0] if summaries else None
    batches = sorted({row.point.batch for row in rows})
    ends = f" to {batches[-1]:,}" if len(batches) > 1 else ""
    target = "-" if first is None else f"{metric_label(first.metric)} {units.score(first.target)}"
    samples = "" if first is None else f"{units.integer(first.train_samples)} training samples"
    return [
        {"label": "Batch sizes", "value": f"{batches[0]:,}{ends}", "note": samples},
        {"label": "Target", "value": target, "note": f"{units.counted(study.seeds, 'seed')} in each row"},
        {"label": "Runs done", "value": str(made), "note": f"{done.get('reached', 0)} reached, {done['left']} to do"},
        {"label": "Cost", "value": short(core_s), "note": "of core time, searches included"},
    ]


def row_cells(study: Study, row: Row) -> dict[str, Any]:
    """A row of the page's table."""
    best = [state.summary.best for _, state in row.runs if state.summary and state.summary.best is not None]
    return {
        "color": plots.color(study, row), "batch": f"{row.point.batch:,}", "series": row.label,
        "rate": units.significant(row.rate), "chosen": row.rate_from + ("*" if row.at_edge else ""),
        "reached": reached_words(row), "all": row.all_reached,
        "epochs": units.significant(mean(row.epochs)), "range": _range(row.epochs), "spread": ratio(row.epochs),
        "spread_interval": spread_ends(row), "needed": units.integer(runs_needed(row.epochs, row.step)),
        "samples": units.integer(mean(row.values("samples"))),
        "steps": units.integer(mean(row.values("steps"))), "time": short(mean(row.times)),
        "quality": units.score(mean(best)),
    }  # fmt: skip


def spread_ends(row: Row) -> str:
    """The 95 % interval of the spread between seeds."""
    ends = spread_interval(row.epochs, row.step)
    return "" if ends is None else f"{ends[0]:.2g} to {ends[1]:.2g}"


def _range(values: list[float]) -> str:
    return f"{min(values):g} to {max(values):g}" if len(values) > 1 else ""
