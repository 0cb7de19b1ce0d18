"""The content of a campaign's response, from the folders of its runs, and its text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.campaign.acceptance import Accepted, judge
from hpcbench.campaign.cost import cost_lines
from hpcbench.campaign.figures import SizeResult, installed, read_results
from hpcbench.campaign.folder import CampaignFolder, Definition
from hpcbench.campaign.response import FIGURES, TITLES, ResponseRow, csv_rows, rows_of
from hpcbench.campaign.rules import UNITS, Campaign, Scenario
from hpcbench.campaign.show import filled, response_table
from hpcbench.measure.installation import packages_words
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.units import counted, significant
from staging.errors import InputError

REHEARSAL = "REHEARSAL: scaled-down numbers on simulated nodes and data. Nothing here is a result of the campaign."


@dataclass(frozen=True)
class Content:
    """Everything that a report is made of."""

    campaign: Campaign
    rehearsal: bool
    scenarios: tuple[tuple[Scenario, tuple[SizeResult, ...], tuple[ResponseRow, ...]], ...]
    """Each scenario that has runs, with its sizes and its rows."""
    acceptance: tuple[Accepted, ...]
    packages: tuple[str, ...]
    """What the runs say about the packages that they used."""


def read_content(folder: CampaignFolder, definition: Definition) -> Content:
    """Read the content of the folder. Raises ``InputError`` if no run is done."""
    results = read_results(folder, definition)
    if not any(result.runs for result in results):
        reasons = [reason for result in results for reason in result.failed]
        raise InputError(f"{folder.path} has no run that is done{': ' + reasons[0] if reasons else ''}")
    campaign = definition.campaign
    scenarios = []
    for name in dict.fromkeys(result.scenario.name for result in results):
        sizes = tuple(result for result in results if result.scenario.name == name)
        scenarios.append((sizes[0].scenario, sizes, tuple(rows_of(sizes[0].scenario, sizes))))
    packages = {
        packages_words(installed(RunFolder(folder.study(result.category, result.scenario).run(run.name))))
        for result in results for run in result.runs
    }  # fmt: skip
    # Nobody has committed to values for the sizes of a rehearsal.
    acceptance = () if definition.rehearsal else tuple(judge(campaign, results))
    return Content(campaign, definition.rehearsal, tuple(scenarios), acceptance, tuple(sorted(packages)))


def text_of(content: Content) -> str:
    """The response as text within 100 columns."""
    blocks = [heading(content), *([REHEARSAL] if content.rehearsal else [])]
    if content.acceptance:
        blocks.append("\n".join(wrapped([f"{accepted.verdict}: {accepted.words}" for accepted in content.acceptance])))
    for scenario, results, rows in content.scenarios:
        shown = response_table(scenario, rows)
        lines = wrapped([*size_lines(content, results), *cost_lines(scenario, rows)])
        blocks.append(f"{scenario_heading(content, scenario)}\n\n{shown}\n\n" + "\n".join(lines))
    blocks.append("\n".join(wrapped(notes(content))))
    return "\n\n".join(blocks)


def heading(content: Content) -> str:
    """The title of the report."""
    return f"{content.campaign.title}: {'rehearsal' if content.rehearsal else 'response'}"


def scenario_heading(content: Content, scenario: Scenario) -> str:
    """The title of a scenario's part."""
    return f"{scenario.name}: {'rehearsal of ' if content.rehearsal else ''}{scenario.title}"


def size_lines(content: Content, results: Sequence[SizeResult]) -> list[str]:
    """For each size a sentence with its figure and the runs it lacks, and why runs do not count."""
    lines = []
    for result in results:
        at = f"{result.category.name}, {counted(result.nodes, 'node')}"
        value = figure_words(result)
        left = f"; {counted(result.missing, 'run')} missing" if result.missing else ""
        mark = "rehearsal: " if content.rehearsal else ""
        lines.append(f"{mark}{at}: {value}{left}")
        if result.convergence is not None:
            lines.append(f"{at}, convergence: {result.convergence.words}")
        lines += [f"{at}, {run.name} does not count: {'; '.join(run.faults)}" for run in result.runs if run.faults]
        lines += [f"{at}, {reason}" for reason in result.failed]
    return lines


def figure_words(result: SizeResult) -> str:
    """The figure of a size with its unit and over how many runs it is, or why there is none."""
    metric = result.scenario.metric
    if result.value is None:
        return "no figure yet"
    if result.unreached:
        return f"no figure, {result.lost_words}"
    runs = f"{metric.statistic} of {result.valid + result.lost}" + (f", {result.lost_words}" if result.lost else "")
    return f"{significant(result.value, 4)} {UNITS[metric.what]} ({runs})"


def notes(content: Content) -> list[str]:
    """Where the rules are from, what ran, and that the results are not verified."""
    lines = [f"Rules: {source.text}; {source.url}, read {source.read}." for source in content.campaign.sources]
    lines += [f"Packages: {words}." for words in content.packages]
    lines += [f"{scenario.name}: {note}" for scenario, _, _ in content.scenarios for note in scenario.notes]
    if any(scenario.references for scenario, _, _ in content.scenarios):
        lines.append(f"Rows 'reference' are published; their {TITLES['samples_per_s_per_accelerator']} is calculated.")
    return [*lines, f"{NOT_VERIFIED}."]


def wrapped(lines: Sequence[str]) -> list[str]:
    """Sentences in lines of at most 100 columns."""
    return [part for line in lines for part in filled(line, "", "  ")]


def csv_text(content: Content) -> str:
    """All rows as CSV."""
    rows = csv_rows(content.campaign, content.rehearsal, {s.name: rows for s, _, rows in content.scenarios})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def metric_column(scenario: Scenario) -> str:
    """The title of the column that has the metric."""
    return TITLES[FIGURES[scenario.metric.what]]
