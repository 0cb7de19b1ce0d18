"""Writes an analysis: the page, its plots as PNG and SVG, and its tables as CSV."""

from __future__ import annotations

from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.analysis import compute_plots, convergence_plots, decomposition_plots, findings, staging_plots, tier_plots
from hpcbench.analysis.analysis import Analysis
from hpcbench.analysis.analysis_files import PAGE, PLOTS, TABLES, not_writable
from hpcbench.analysis.decomposition import TERMS, Decomposition
from hpcbench.analysis.figure_findings import pair_finding
from hpcbench.analysis.ranking import Ranking, every_pair, pair_row, ranking_rows
from hpcbench.analysis.save_figures import save_figures
from hpcbench.analysis.sheets import Sheet
from hpcbench.application_names import application_name
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import Figure
from hpcbench.results.report import LONGEST_HEADING, Drawn, write_page
from hpcbench.results.run_folder import write_atomic
from hpcbench.results.units import counted


def write_analysis(analysis: Analysis, out: Path) -> Path:
    """Write everything into the folder ``out``; return the page. Raises ``InputError`` where it cannot be written."""
    drawn = figures(analysis)
    sheets = all_sheets(analysis)
    try:
        for name in (PLOTS, TABLES):
            (out / name).mkdir(parents=True, exist_ok=True)
        shown = save_figures(drawn, out / PLOTS)
        for sheet in sheets.values():
            write_atomic(out / TABLES / f"{sheet.name}.csv", sheet.as_csv)
    except OSError as error:
        raise not_writable(out, error) from error
    write_page(out / PAGE, page_of(analysis, shown, sheets))
    return out / PAGE


def figures(analysis: Analysis) -> list[Figure]:
    """Every plot that the runs allow."""
    entries = {entry.identity: entry for entry in analysis.entries}
    drawn: list[Figure | None] = []
    for ranking in analysis.rankings:
        drawn.append(decomposition_plots.decomposition(ranking, analysis.labels))
        drawn.append(decomposition_plots.waterfall(ranking, analysis.labels, against_in(analysis, ranking)))
    machine = None if analysis.machine is None else analysis.machine.title
    drawn += [
        staging_plots.staging(analysis.staging, analysis.entries),
        convergence_plots.convergence(analysis.convergence, analysis.references, entries, analysis.labels),
        convergence_plots.variation(analysis.variation, analysis.entries),
        compute_plots.compute(analysis.compute, entries),
        tier_plots.tier_map(analysis.tiers, analysis.ran, machine),
    ]
    return [figure for figure in drawn if figure is not None]


def against_in(analysis: Analysis, ranking: Ranking) -> str | None:
    """The entry to which the waterfall from the base is drawn, where one was asked for and is in this ranking."""
    return next((entry.name for entry in analysis.against if entry.key == ranking.base.key), None)


def told_pairs(analysis: Analysis, ranking: Ranking) -> list[Decomposition]:
    """The pairs that are described in words."""
    return decomposition_plots.chosen_pairs(ranking, against_in(analysis, ranking))


def all_sheets(analysis: Analysis) -> dict[str, Sheet]:
    """Every table by name."""
    sheets = []
    for ranking in analysis.rankings:
        sheets.append(Sheet(f"{ranking.slug}-ranking", "Ranking", ranking_rows(ranking)))
        against = [pair_row(pair, ranking) for pair in ranking.against]
        sheets.append(Sheet(f"{ranking.slug}-factors", f"Factors against {ranking.base.name}", against))
    pairs = [row for ranking in analysis.rankings for row in every_pair(ranking)]
    sheets += [
        Sheet("pairs", "Every pair", pairs),
        Sheet("staging", "Staging of each entry", analysis.staging),
        Sheet("epochs", "Epochs of each entry", analysis.convergence),
        Sheet("reference-points", "Reference convergence points and their recipes", analysis.references),
        Sheet("variation", "Spread between the runs of an entry", analysis.variation),
        Sheet("compute", "Compute of each entry", analysis.compute),
        Sheet("tiers", "Memory tiers of machines", analysis.tiers),
    ]
    return {sheet.name: sheet for sheet in sheets if sheet.rows}


def summary(analysis: Analysis, pairs: bool = False) -> list[str]:
    """The findings as sentences; with ``pairs``, also those of the pairs that are drawn."""
    by_ranking = ranking_findings(analysis).values()
    told = [sentence for sentences in by_ranking for sentence in (sentences if pairs else sentences[:1])]
    return [
        *told, *findings.staging_sentences(analysis.staging, analysis.labels),
        *findings.variation_sentences(analysis.variation), *findings.closing_sentences(analysis.entries),
    ]  # fmt: skip


def ranking_findings(analysis: Analysis) -> dict[str, list[str]]:
    """The findings of each ranking, by its part of file names; that of the base comes first."""
    return {
        ranking.slug: findings.ranking_sentences(ranking, analysis.labels, told_pairs(analysis, ranking))
        for ranking in analysis.rankings if len(ranking.entries) > 1
    }  # fmt: skip


def headline(analysis: Analysis) -> str:
    """Why the slower entry of the first pair takes longer; empty for several rankings, and if it is too long."""
    rankings = [ranking for ranking in analysis.rankings if len(ranking.entries) > 1]
    pairs = told_pairs(analysis, rankings[0]) if len(rankings) == 1 else []
    finding = pair_finding(pairs[0], analysis.labels) if pairs else ""
    return finding if len(finding) <= LONGEST_HEADING else ""


def entry_notes(analysis: Analysis) -> list[str]:
    """Notes on what is unusual about entries."""
    told = [
        f"{entry.name} ({application_name(entry.key[0])}): {note}."
        for entry in analysis.entries
        for note in entry.notes
    ]
    return [*told, *findings.repeated_notes(analysis.entries)]


def page_of(analysis: Analysis, drawn: dict[str, Drawn], sheets: dict[str, Sheet]) -> str:
    """The page as HTML text."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.analysis"), PackageLoader("hpcbench.results")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    heading = headline(analysis)
    applications = list(dict.fromkeys(application_name(entry.key[0]) for entry in analysis.entries))
    return environment.get_template("analysis.html").render(
        version=__version__,
        page_title=f"Joint analysis: {', '.join(applications)}{': ' * bool(heading)}{heading}",
        heading=heading,
        applications=applications,
        entries=counted(len(analysis.entries), "entry", "entries"),
        runs=counted(analysis.runs, "run"),
        has_own_entries=analysis.has_own_entries,
        not_verified=NOT_VERIFIED,
        findings=summary(analysis),
        comparisons=findings.comparison_notes(analysis.rankings),
        rankings=[ranking for ranking in analysis.rankings if len(ranking.entries) > 1],
        name=application_name,
        figures=drawn,
        sheets=sheets,
        terms=TERMS,
        without=[(entry, entry.why_not) for entry in analysis.entries if entry.score_s is None],
        told=ranking_findings(analysis),
        notes=entry_notes(analysis),
        plots=PLOTS, tables=TABLES,
    )  # fmt: skip
