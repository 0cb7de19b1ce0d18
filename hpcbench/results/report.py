"""The report: one self-contained page per run, and a page that compares several."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hpcbench import __version__
from hpcbench.results import compare, run_page, style, units
from hpcbench.results.attempts import Attempts
from hpcbench.results.attempts_table import attempts_table
from hpcbench.results.beside import Beside, FindBeside
from hpcbench.results.layer_plots import trust_ratios
from hpcbench.results.machine_use import checkpoint_pairs, use_pairs
from hpcbench.results.phase_table import phase_table
from hpcbench.results.plots import Figure, phases, run_figures
from hpcbench.results.records import Run, read_object, read_run
from hpcbench.results.references import SPREAD_WORDS
from hpcbench.results.registered_figures import registered_figures
from hpcbench.results.run_folder import write_atomic
from hpcbench.results.staging_plots import timelines
from hpcbench.results.staging_table import staging_pairs
from staging.errors import InputError
from staging.formats.regular import read_text

Drawings = dict[str, Any]
"""Drawn figures of a page by name; ``science`` and ``registered`` are lists of them.

``problems`` are lines on figures of other packages that cannot be drawn.
"""


LONGEST_HEADING = 110
"""Characters of a finding that still make a heading: two lines of it."""


@dataclass(frozen=True)
class Drawn:
    """A figure as the page shows it."""

    name: str
    heading: str
    caption: str
    svg: Markup

    @classmethod
    def of(cls, figure: Figure, titled: bool = False) -> Drawn:
        """Draw ``figure`` under its finding, or under its title if ``titled``, or if it has no finding that fits."""
        svg = style.svg(figure.figure, figure.name)
        labelled = svg.replace("<svg", f'<svg role="img" aria-label="{Markup.escape(figure.alternative)}"', 1)
        return cls.around(figure, labelled, titled)

    @classmethod
    def around(cls, figure: Figure, svg: str, titled: bool = False) -> Drawn:
        """The same of a drawing that was made before; the caption begins with what is not in the heading."""
        heading, caption, finding = figure.title, figure.caption, figure.finding
        if finding and not titled:
            title = figure.title if figure.title.endswith("?") else f"{figure.title}."
            fits = len(finding) <= LONGEST_HEADING
            heading, lead = (finding, title) if fits else (figure.title, f"{finding}.")
            caption = f"{lead} {caption}".rstrip()
        return cls(figure.name, heading, caption, Markup(svg))  # noqa: S704


def write_report(
    paths: Sequence[Path],
    out: Path | None = None,
    png: bool = False,
    find_beside: FindBeside | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Write ``report.html`` into every run folder of ``paths``, and for several runs a page that compares them.

    ``out`` is where the comparison goes (``comparison.html`` in the folder that holds the runs when unset); for a
    single run, where its page goes. A folder that is given twice counts once. ``png`` adds every plot as
    ``figures/<name>.png`` beside its page. With ``find_beside`` the pages show results of others beside the runs, where
    there are any. Returns the pages written, the comparison last; of several runs, a page that cannot be written in its
    folder is left out, and ``tell`` is called with a line that says so. Raises ``InputError`` for a path that is not a
    run folder or where no page can be written, ``DataError`` for damaged files.
    """
    if out is not None and out.is_dir():
        raise InputError(f"--out {out} is a folder; give the name of a file, such as {out / 'comparison.html'}")
    runs = [read_run(path) for path in {Path(path).resolve(): path for path in paths}.values()]
    pages = []
    elsewhere = "give --out FILE" if out is None else "give another --out"
    for run in runs:
        page = out if out is not None and len(runs) == 1 else run.folder.report
        try:
            write_page(page, page_of_run(run, page, png, find_beside=find_beside), elsewhere)
            pages.append(page)
        except NotWritableError as error:
            if len(runs) == 1:
                raise
            tell(f"{error.path} cannot be written ({error.why}), so this run has no page of its own")
    if len(runs) > 1:
        page = out or Path(os.path.commonpath([run.folder.path.resolve().parent for run in runs])) / "comparison.html"
        write_page(page, comparison_page(runs, page, png, find_beside), elsewhere)
        pages.append(page)
    return pages


class NotWritableError(InputError):
    """A page, or a plot beside it, that cannot be written."""

    def __init__(self, path: Path, error: OSError, advice: str) -> None:
        self.path, self.why = path, error.strerror
        super().__init__(f"{path} cannot be written ({self.why}); {advice}")


IN_A_COPY = "make its folder writable, or report in a copy of the folder"


def write_page(path: Path, text: str, advice: str = IN_A_COPY) -> None:
    """Write a page under a temporary name, then rename it. Raises ``NotWritableError`` with ``advice``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise NotWritableError(path, error, advice) from None


def write_run_page(folder: Path, drawings: Drawings) -> None:
    """Write ``report.html`` into a run folder, around plots that ``draw_run`` made before its summary was final."""
    run = read_run(folder)
    write_page(run.folder.report, page_of_run(run, run.folder.report, drawings=drawings))


def draw_run(run: Run, page: Path, png: bool = False) -> Drawings:
    """The plots of one run, except its phases, by name; drawing them takes longer than writing the page."""
    plots = run_page.plots_module(run)
    science = plots.figures(run.folder.path) if plots is not None else []
    drawn = {figure.name: _draw(figure, page, png, titled=True) for figure in run_figures(run)}
    registered, problems = registered_figures(run)
    staged, ratios = timelines(read_object(run.folder.staging)), trust_ratios(run)
    return {name: drawn.get(name) for name in ("quality", "loss", "noise_scale", "throughput")} | {
        "trust_ratios": None if ratios is None else _draw(ratios, page, png, titled=True),
        "science": [_draw(figure, page, png, titled=True) for figure in science],
        "registered": [_draw(figure, page, png, titled=True) for figure in registered],
        "problems": problems,
        "staging": None if staged is None else _draw(staged, page, png, titled=True),
    }


def page_of_run(
    run: Run, page: Path, png: bool = False, drawings: Drawings | None = None, find_beside: FindBeside | None = None
) -> str:
    """The page of one run as HTML text, with ``drawings`` or newly drawn plots."""
    drawings = draw_run(run, page, png) if drawings is None else drawings
    beside = None if find_beside is None else find_beside({"this run": run})
    bar = phases(run)
    environment = read_object(run.folder.environment)
    system = read_object(run.folder.system)
    references, here, expected = run_page.reference_rows(run)
    spoken, s = run_page.Words.of(run), run.summary
    config, attempts = run.folder.config, Attempts.read(run.folder.path)
    return _render(
        "run.html",
        page_title=f"{s.application} {s.preset}: {run_page.verdict(run)['headline'].lower()}",
        application=s.application,
        title=s.title,
        preset=s.preset,
        date=run_page.day(s.started),
        verdict=run_page.verdict(run),
        about=spoken.about,
        tiles=run_page.tiles(run),
        metrics=run_page.metrics_table(run),
        notes=spoken.notes,
        figures=drawings | {"phases": None if bar is None else _draw(bar, page, png, titled=True)},
        phases=phase_table(run, attempts),
        attempts=attempts_table(attempts),
        use=use_pairs(run),
        checkpoints=checkpoint_pairs(s),
        score=units.duration(s.time_to_solution_s),
        staging=staging_pairs(run),
        references=references,
        this_run=here,
        expected=expected,
        spread_words=SPREAD_WORDS,
        beside=drawn_beside(beside, page, png, titled=True),
        command=run_page.command_line(environment),
        setup=run_page.setup_pairs(run),
        machine=run_page.machine_pairs(run, system),
        configuration=read_text(config) if config.exists() else "",
        versions=run_page.description_pairs(environment.get("versions") or {})
        + run_page.description_pairs({"source": environment.get("source") or {}}),
        system=run_page.description_pairs(system),
        launcher=run_page.description_pairs(environment.get("launcher") or {}),
        files=run_page.file_pairs(run),
    )


def comparison_page(runs: Sequence[Run], page: Path, png: bool = False, find_beside: FindBeside | None = None) -> str:
    """The page that compares ``runs``, grouped by application, as HTML text."""
    names = compare.run_names(runs)
    groups = []
    for application in dict.fromkeys(run.summary.application for run in runs):
        members = {name: run for name, run in zip(names, runs, strict=True) if run.summary.application == application}
        group = compare.group(members, page.parent)
        drawn = [_draw(figure, page, png) for figure in compare.figures(members)]
        beside = None if find_beside is None else find_beside(members)
        groups.append(group | {"figures": drawn, "beside": drawn_beside(beside, page, png)})
    findings = "; ".join(group["finding"] for group in groups if group["finding"])
    headline = findings or f"Comparison of {len(runs)} runs"
    return _render(
        "compare.html",
        page_title=headline,
        headline=headline,
        caveats=list(dict.fromkeys(group["caveat"] for group in groups if group["caveat"])),
        count=len(runs),
        groups=groups,
    )


def drawn_beside(beside: Beside | None, page: Path, png: bool, titled: bool = False) -> dict[str, Any] | None:
    """What a page shows beside its runs, with the figure drawn."""
    if beside is None:
        return None
    figure = None if beside.figure is None else _draw(beside.figure, page, png, titled)
    return {"metric": beside.metric, "rows": beside.rows, "notes": beside.notes, "figure": figure}


def _draw(figure: Figure, page: Path, png: bool, titled: bool = False) -> Drawn:
    """The figure as its page shows it; ``png`` writes it beside the page, too."""
    if png:
        path = page.parent / "figures" / f"{figure.name}.png"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            style.save(figure.figure, path)
        except OSError as error:
            raise NotWritableError(path, error, "leave out --png, or give --out FILE in a folder to write") from None
    return Drawn.of(figure, titled)


def _render(template: str, **context: Any) -> str:
    environment = Environment(
        loader=PackageLoader("hpcbench.results"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(version=__version__, **context)
