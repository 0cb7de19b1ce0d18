"""The page of a scaling study, and the files beside it: results.csv, table.txt, the plots, and the proposal table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.results import style, units
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure
from hpcbench.results.report import LONGEST_HEADING, Drawn, write_page
from hpcbench.results.run_folder import write_atomic
from hpcbench.study.scaling import instance_plots, phase_plots, plots, table
from hpcbench.study.scaling.content import Content
from hpcbench.study.scaling.figure_findings import headline
from hpcbench.study.scaling.findings import fastest_variant, findings, fit_words, notes
from hpcbench.study.scaling.instance_table import instance_notes, instance_sheets, pruned_lines
from hpcbench.study.scaling.point_results import Mode, by_variant, efficiency, rate, speed_up
from hpcbench.study.scaling.proposal_forms import as_csv, as_latex, as_text
from hpcbench.study.scaling.solution_table import solution_sheets

PAGE = "scaling.html"
XML = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
"""Precedes a drawing that is a separate file."""
TITLES: dict[Mode, str] = {
    "strong": "Strong scaling", "weak": "Weak scaling", "throughput": "Throughput of independent trainings",
}  # fmt: skip


def write_scaling(content: Content, folder: Path) -> str:
    """Write page, tables and plots into ``folder``; returns the text of ``table.txt``."""
    study_figures = figures(content)
    drawn = {figure.name: Drawn.of(figure) for figure in study_figures}
    folder.mkdir(parents=True, exist_ok=True)
    for figure in study_figures:
        style.save_in_study(figure.figure, folder / f"{figure.name}.png")
        write_atomic(folder / f"{figure.name}.svg", f"{XML}{drawn[figure.name].svg}\n")
    write_atomic(folder / "results.csv", table.results_frame(content.rows).to_csv(index=False))
    text = text_of(content)
    write_atomic(folder / "table.txt", text + "\n")
    if content.proposal:
        for suffix, form in (("txt", as_text), ("tex", as_latex), ("csv", as_csv)):
            write_atomic(folder / f"proposal.{suffix}", form(content.proposal))
    write_page(folder / PAGE, page_of(content, drawn))
    return text


def figures(content: Content) -> list[Figure]:
    """Every plot that the runs allow, with lines and bars of as many variants as can be told apart."""
    rows, simulated = plots.leading(content.rows), content.simulated
    shown, every = by_variant(rows), by_variant(content.rows)
    trainings = {name: solutions for name, solutions in content.solutions.items() if name in shown}
    study_figures = [
        plots.throughput(rows, content.mode, content.fits, simulated),
        plots.efficiencies(rows, simulated),
        phase_plots.phases(rows, simulated),
        phase_plots.staging(rows, simulated),
        phase_plots.solution(trainings, simulated),
    ]
    if len(shown) < len(every):
        only = f" Only the {len(shown)} fastest of {len(every)} variants are drawn; the tables have all."
        study_figures = [
            None if figure is None else replace(figure, caption=figure.caption + only) for figure in study_figures
        ]
    study_figures += [plots.variants(content.rows, simulated), instance_plots.timeline(content.rows, simulated)]
    return [figure for figure in study_figures if figure is not None]


def text_of(content: Content) -> str:
    """Findings, results, parts, fits, cost and notes as plain text within 100 columns."""
    head = f"{heading(content)}: {content.application} {content.preset}, {content.site}"
    solutions = [sheet.as_text() for sheet in solution_sheets(content.solutions)]
    blocks = [
        "\n".join(table.wrapped([head])),
        "\n".join(table.wrapped(findings(content))),
        table.results_table(content.rows, content.mode),
        instances_text(content),
        table.phases_table(content.rows),
        "\n".join(table.wrapped([fit_words(name, fit) for name, fit in content.fits.items()])),
        *solutions,
        "\n".join(table.wrapped([f"{NOT_VERIFIED}.", *notes(content), f"Machine: {content.machine}"])),
    ]
    return "\n\n".join(block for block in blocks if block)


def instances_text(content: Content) -> str:
    """How the instances of a throughput study ran, as plain text; empty in the other modes."""
    if content.mode != "throughput":
        return ""
    sheets = [sheet.as_text() for sheet in instance_sheets(content.rows, timed=content.steps is None)]
    lines = [*pruned_lines(content.rows), *instance_notes(content.rows, timed=content.steps is None)]
    return "\n\n".join([*sheets, "\n".join(table.wrapped(lines))])


def page_of(content: Content, drawn: Mapping[str, Drawn]) -> str:
    """The page as HTML text."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.study"), PackageLoader("hpcbench.results")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    many = content.mode == "throughput"
    kind, lead = heading(content), headline(content)
    fits_heading = len(lead) <= LONGEST_HEADING
    return environment.get_template(PAGE).render(
        version=__version__,
        page_title=f"{content.application} {content.preset}: {kind.lower()}: {lead}",
        content=content,
        kind=kind if fits_heading else "",
        heading=lead if fits_heading else kind,
        findings=findings(content),
        tiles=tiles(content),
        figures=drawn,
        results=table.result_sheets(content.rows, content.mode),
        instances=instance_sheets(content.rows, timed=content.steps is None) if many else [],
        pruned=pruned_lines(content.rows) if many else [],
        instance_notes=instance_notes(content.rows, timed=content.steps is None) if many else [],
        steps=[*table.step_sheets(content.rows), *table.rank_sheets(content.rows)],
        use=table.use_sheets(content.rows),
        beside=table.beside_sheets(content.rows),
        solutions=solution_sheets(content.solutions),
        fits=[fit_words(name, fit) for name, fit in content.fits.items()],
        repeats=table.repeat_lines(content.rows),
        devices=table.device_lines(content.rows),
        energy=table.energy_lines(content.rows),
        slow=table.slow_lines(content.rows),
        notes=notes(content),
        proposal=as_text(content.proposal) if content.proposal else "",
        failed=sum(len(row.failed) for row in content.rows),
        to_do=sum(row.left for row in content.rows),
    )


def heading(content: Content) -> str:
    """The heading of the page: ``Strong scaling from 1 to 8 nodes``."""
    sizes = plots.sizes(content.rows)
    where = f"from {sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"on {sizes[0]:,}"
    kind = "simulated node" if content.simulated else "node"
    return f"{TITLES[content.mode]} {where} {kind}{'' if sizes == [1] else 's'}"


def tiles(content: Content) -> list[dict[str, str]]:
    """The numbers at the top of the page."""
    best = by_variant(content.rows)[fastest_variant(content.rows)]
    first, last = best[0], best[-1]
    done, failed, left = (sum(counts) for counts in zip(
        *((len(row.runs), len(row.failed), row.left) for row in content.rows), strict=True))  # fmt: skip
    cost = sum(run.wall_s * row.nodes for row in content.rows for run in row.runs) / 3600
    sample = table.middle(last, "joules_per_sample")
    efficiency_text = units.MISSING if first is last else units.whole_percent(efficiency(last, first))
    on = f"on {table.nodes_words(last.nodes)}" + (f", {last.variant}" if last.variant else "")
    return [
        {"label": "Throughput", "value": f"{units.significant(rate(last))}/s", "note": f"samples {on}"},
        {"label": "Efficiency", "value": efficiency_text,
         "note": "needs two sizes" if first is last
         else f"a speed-up of {speed_up(last, first):,.2f} over {table.nodes_words(first.nodes)}"},
        {"label": "Repeats done", "value": f"{done} of {done + failed + left}",
         "note": f"{failed} failed, {left} left to run" + (f"; {units.significant(cost)} node-hours" if cost else "")},
        {"label": "Energy", "value": f"{units.significant(sample)} J" if sample is not None else units.MISSING,
         "note": f"per sample {on}" if sample is not None else "not measured"},
    ]  # fmt: skip
