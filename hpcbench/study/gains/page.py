"""The page of a gains study, and the files beside it: results.csv, table.txt and the plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.results import style, units
from hpcbench.results.report import Drawn, write_page
from hpcbench.results.run_folder import write_atomic
from hpcbench.results.summary import Summary
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.plan_text import missing_text, wrapped
from hpcbench.study.gains.plots import figures
from hpcbench.study.gains.results import Results
from hpcbench.study.gains.sentences import fastest, findings, heading, notes, times, unavailable
from hpcbench.study.gains.table import LEFT, results_frame, sheets

PAGE = "gains.html"
XML = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
"""Precedes a drawing that is a separate file."""


def write_gains(study: Gains, results: Results, first: Summary, warmup_steps: int, folder: Path) -> str:
    """Write page, tables and plots into ``folder``; returns the text of ``table.txt``."""
    plots = figures(results, first.metric)
    drawn = {figure.name: Drawn.of(figure) for figure in plots}
    for figure in plots:
        style.save_in_study(figure.figure, folder / f"{figure.name}.png")
        write_atomic(folder / f"{figure.name}.svg", f"{XML}{drawn[figure.name].svg}\n")
    write_atomic(folder / "results.csv", results_frame(results).to_csv(index=False))
    text = text_of(study, results, first, warmup_steps)
    write_atomic(folder / "table.txt", text + "\n")
    write_page(folder / PAGE, page_of(study, results, first, warmup_steps, drawn))
    return text


def text_of(study: Gains, results: Results, first: Summary, warmup_steps: int) -> str:
    """Findings, tables, what cannot be measured, and notes as plain text within 100 columns."""
    blocks = [
        "\n".join(wrapped([f"{heading(study, results)}: preset {study.preset}, {machine(study, first)}"])),
        "\n".join(wrapped(findings(results, first.metric))),
        *(sheet.as_text() for sheet in sheets(results, first.metric)),
        missing_text(unavailable(study, results)),
        "\n".join(wrapped(notes(study, results, warmup_steps))),
    ]
    return "\n\n".join(block for block in blocks if block)


def machine(study: Gains, first: Summary) -> str:
    """What the runs ran on, in one line."""
    ranks = units.counted(study.ranks, "rank")
    return f"{first.device}, {ranks} of {units.counted(max(1, study.cores // study.ranks), 'thread')}"


def page_of(study: Gains, results: Results, first: Summary, warmup_steps: int, drawn: Mapping[str, Drawn]) -> str:
    """The page as HTML text."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.study"), PackageLoader("hpcbench.results")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    said = findings(results, first.metric)
    return environment.get_template(PAGE).render(
        version=__version__,
        page_title=f"{study.application} {study.preset}: what optimisation brings",
        study=study,
        title=first.title,
        date=first.started[:10],
        machine=machine(study, first),
        heading=heading(study, results),
        findings=said,
        tiles=tiles(study, results),
        sheets=[(sheet, LEFT) for sheet in sheets(results, first.metric)],
        figures=drawn,
        missing=unavailable(study, results),
        notes=notes(study, results, warmup_steps),
        left=sum(result.left for result in (results.baseline, *results.options)),
    )


def tiles(study: Gains, results: Results) -> list[dict[str, str]]:
    """The numbers at the top of the page."""
    best, plain = fastest(results), results.baseline.middle("step_s")
    step = None if best is None else best.middle("step_s")
    speed = units.MISSING if best is None or best.ratio is None else times(best.ratio)
    ends = "no option is faster" if best is None or best.ratio is None else (
        "95 %: {:.3g}x to {:.3g}x".format(*(1 / end for end in reversed(best.ratio.interval)))
    )  # fmt: skip
    helped = sum(result.verdict == "faster" for result in results.options)
    return [
        {"label": "Faster", "value": speed, "note": ends},
        {"label": "A step", "value": units.duration(step if step is not None else plain),
         "note": f"{units.duration(plain)} in the plain baseline"},
        {"label": "Options", "value": str(len(results.options)),
         "note": f"{helped} faster alone; {len(unavailable(study, results))} not measured"},
        {"label": "Repeats", "value": str(study.repeats), "note": f"of {study.steps} steps, a seed each"},
    ]  # fmt: skip
