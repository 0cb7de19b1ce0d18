"""The report: one self-contained page per run, and a page that compares several."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hpcbench import __version__
from hpcbench.results import compare, facts, style, units
from hpcbench.results.layer_plots import trust_ratios
from hpcbench.results.plots import Figure, run_figures
from hpcbench.results.records import Run, read_run
from hpcbench.results.run_folder import write_atomic
from hpcbench.results.staging_plots import timelines
from staging.errors import InputError


@dataclass(frozen=True)
class Drawn:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    svg: Markup

    @classmethod
    def of(cls, figure: Figure) -> Drawn:
        """Draw ``figure``."""
        svg = style.svg(figure.figure, figure.name)
        labelled = svg.replace("<svg", f'<svg role="img" aria-label="{Markup.escape(figure.title)}"', 1)
        return cls(figure.name, figure.title, figure.caption, Markup(labelled))  # noqa: S704


def write_report(paths: Sequence[Path], out: Path | None = None, png: bool = False) -> list[Path]:
    """Write ``report.html`` into every run folder of ``paths``, and for several runs a page that compares them.

    ``out`` is where the comparison goes (``comparison.html`` in the folder that holds the runs when unset); for a
    single run, where its page goes. ``png`` adds every plot as ``figures/<name>.png`` beside its page. Returns the
    pages written, the comparison last. Raises ``InputError`` for what is no run folder, ``DataError`` for damaged
    files of a run.
    """
    if out is not None and out.is_dir():
        raise InputError(f"--out {out} is a folder; give the name of a file, such as {out / 'comparison.html'}")
    runs = [read_run(path) for path in paths]
    pages = []
    for run in runs:
        page = out if out is not None and len(runs) == 1 else run.folder.report
        write_page(page, run_page(run, page, png))
        pages.append(page)
    if len(runs) > 1:
        page = out or Path(os.path.commonpath([run.folder.path.resolve().parent for run in runs])) / "comparison.html"
        write_page(page, comparison_page(runs, page, png))
        pages.append(page)
    return pages


def write_page(path: Path, text: str) -> None:
    """Write a page by temporary name and rename; ``InputError`` where its folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); give another --out") from error


def run_page(run: Run, page: Path, png: bool = False) -> str:
    """The page of one run as HTML text."""
    plots = facts.plots_module(run)
    science = plots.figures(run.folder.path) if plots is not None else []
    drawn = {figure.name: _draw(figure, page, png) for figure in run_figures(run)}
    staged = timelines(facts.read_object(run.folder.staging))
    ratios = trust_ratios(run)
    figures = {name: drawn.get(name) for name in ("quality", "loss", "noise_scale", "phases", "throughput")}
    figures["trust_ratios"] = None if ratios is None else _draw(ratios, page, png)
    environment = facts.read_object(run.folder.environment)
    system = facts.read_object(run.folder.system)
    references, here = facts.reference_rows(run)
    spoken, s = facts.Words.of(run), run.summary
    config = run.folder.config
    return _render(
        "run.html",
        page_title=f"{s.application} {s.preset}: {facts.verdict(run)['headline'].lower()}",
        application=s.application,
        title=s.title,
        preset=s.preset,
        date=facts.day(s.started),
        verdict=facts.verdict(run),
        about=spoken.about,
        tiles=facts.tiles(run),
        metrics=facts.metrics_table(run),
        notes=spoken.notes,
        figures=figures
        | {
            "science": [_draw(figure, page, png) for figure in science],
            "staging": None if staged is None else _draw(staged, page, png),
        },
        phases=facts.phase_rows(run),
        wall=f"{s.wall_s:,.3f}",
        phases_cover=units.percent(sum(run.phase_seconds().values()) / s.wall_s if s.wall_s else None),
        score=units.duration(s.time_to_solution_s),
        staging=facts.staging_pairs(run),
        references=references,
        this_run=here,
        command=facts.command_line(environment),
        setup=facts.setup_pairs(run),
        machine=facts.machine_pairs(run, system),
        configuration=config.read_text(encoding="utf-8") if config.exists() else "",
        versions=facts.description_pairs(environment.get("versions") or {})
        + facts.description_pairs({"source": environment.get("source") or {}}),
        system=facts.description_pairs(system),
        launcher=facts.description_pairs(environment.get("launcher") or {}),
        files=facts.file_pairs(run),
    )


def comparison_page(runs: Sequence[Run], page: Path, png: bool = False) -> str:
    """The page that compares ``runs``, grouped by application, as HTML text."""
    names = compare.run_names(runs)
    groups = []
    for application in dict.fromkeys(run.summary.application for run in runs):
        members = {name: run for name, run in zip(names, runs, strict=True) if run.summary.application == application}
        group = compare.group(members, page.parent)
        drawn = [_draw(figure, page, png) for figure in compare.figures(members)]
        groups.append(group | {"figures": drawn})
    return _render(
        "compare.html",
        page_title=f"Comparison of {len(runs)} runs",
        headline=f"Comparison of {len(runs)} runs",
        count=len(runs),
        groups=groups,
    )


def _draw(figure: Figure, page: Path, png: bool) -> Drawn:
    if png:
        folder = page.parent / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        style.save(figure.figure, folder / f"{figure.name}.png")
    return Drawn.of(figure)


def _render(template: str, **context: Any) -> str:
    environment = Environment(
        loader=PackageLoader("hpcbench.results"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(version=__version__, **context)
