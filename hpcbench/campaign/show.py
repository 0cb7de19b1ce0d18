"""The rules of a campaign for people: tables and lines that fit 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from hpcbench.campaign.categories import bounds_words, shown
from hpcbench.campaign.cost import recipe_line
from hpcbench.campaign.response import FIGURES, SHORT, TITLES, ResponseRow, rows_of_references
from hpcbench.campaign.rules import Campaign, Category, Column, Scenario, SettingRule
from hpcbench.results.tables import WIDTH, table
from hpcbench.results.units import counted

TWO = "  "
KEPT: tuple[Column, ...] = (
    "category",
    "nodes",
    "replicate",
    "samples_per_s_per_accelerator",
    "valid",
    *FIGURES.values(),
)
"""Columns that a table has even if all rows have the same value."""
TEXTS: tuple[Column, ...] = ("category", "replicate", "staged", "scheduler", "optimizer", "precision")
"""Columns that do not hold numbers."""


def campaigns_table(campaigns: Sequence[Campaign]) -> str:
    """A line for each campaign."""
    rows = [
        [
            campaign.name,
            ", ".join(category.name for category in campaign.categories),
            campaign.sources[0].read,
            campaign.title,
        ]
        for campaign in campaigns
    ]
    return table(("campaign", "categories", "read", "what"), rows)


def rules_page(campaign: Campaign) -> str:
    """All rules of a campaign as text."""
    blocks = ["\n".join(filled(campaign.title)), "\n".join(source_lines(campaign))]
    blocks.append(
        "Categories\n" + "\n".join(line for category in campaign.categories for line in category_lines(category))
    )
    blocks += ["\n".join(scenario_lines(campaign, scenario)) for scenario in campaign.scenarios]
    if campaign.acceptance:
        rows = [[promise.scenario, promise.category, str(promise.nodes), f"{promise.value:g}",
                 f"{100 * promise.tolerance:g} %", str(promise.repeats)]
                for promise in campaign.acceptance]  # fmt: skip
        headers = ("scenario", "category", "nodes", "value", "tolerance", "repeats")
        blocks.append(f"Committed values\n\n{table(headers, rows, right=headers[2:])}")
    if campaign.notes:
        blocks.append("\n".join(line for note in campaign.notes for line in filled(note, "- ")))
    return "\n\n".join(blocks)


def filled(text: str, first: str = "", indent: str = "") -> list[str]:
    """A text in lines of at most 100 columns."""
    indent = indent or " " * len(first)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def source_lines(campaign: Campaign) -> Iterator[str]:
    """Where the rules are from, and when the source was read."""
    for source in campaign.sources:
        yield from filled(f"{source.text}; {source.url}, read {source.read}", "source: ")


def category_lines(category: Category) -> Iterator[str]:
    """What a category may change."""
    yield from filled(f"{category.name}: code: {category.code}", TWO, " " * 4)
    yield from filled(f"precision: {', '.join(category.precision)} ({category.precision_rule})", " " * 4, " " * 6)
    if category.division:
        yield from filled(f"division: {category.division}, in the official logs", " " * 4)
    if category.released:
        yield from filled("packages: the released ones, unchanged", " " * 4)


def scenario_lines(campaign: Campaign, scenario: Scenario) -> Iterator[str]:
    """The rules of a scenario, its settings by category, and its reference results."""
    yield f"Scenario {scenario.name}: {scenario.title}"
    yield ""
    for name, value in facts(scenario):
        yield from filled(value, f"{TWO}{name:12} ")
    yield ""
    rows = list(setting_rows(campaign, scenario))
    numbered = [[*row[:-1], f"[{number}]" if row[-1] else ""] for number, row in enumerate(rows, 1)]
    yield table(["settings", *(category.name for category in campaign.categories), "rule"], numbered)
    for number, row in enumerate(rows, 1):
        if row[-1]:
            yield from filled(row[-1], f"{TWO}[{number}] ")
    if scenario.references:
        yield ""
        yield "Reference results"
        yield ""
        yield response_table(scenario, rows_of_references(scenario))
    cost = recipe_line(scenario)
    if cost:
        yield ""
        yield from filled(cost)
    for note in scenario.notes:
        yield from filled(note, "- ")


def facts(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """The rules that are the same in all categories, in words."""
    data, batch, stop, metric = scenario.dataset, scenario.batch, scenario.stop, scenario.metric
    yield "application", f"{scenario.application}, preset {scenario.preset}"
    counts = (
        "" if data.train_samples is None else f"; {data.train_samples:,} + {data.validation_samples or 0:,} samples"
    )
    yield "dataset", data.text + counts
    size = "the submitter's choice"
    if batch.global_size is not None:
        size = f"global batch {batch.global_size:,}"
    elif batch.local_size is not None:
        size = f"local batch {batch.local_size:,} (of an accelerator)"
    yield "batch", f"{size}; accumulation {'allowed' if batch.accumulation else '1'}"
    ladder = ", ".join("N" if scale == 1 else f"{scale}N" for scale in scenario.scales)
    yield "scales", scenario.scales_rule or (f"{ladder} nodes" if ladder else "any")
    yield "replicates", (f"{scenario.replicates} instances or more, side by side" if scenario.throughput
                         else f"{scenario.replicates} of each size")  # fmt: skip
    yield "seeds", scenario.seeds or "not said"
    end = f"after {counted(stop.epochs, 'epoch')}"
    yield "stop", end if stop.target is None else f"target {stop.target:g}, at the latest {end}"
    excludes = f"; without {' and '.join(metric.excludes)}" if metric.excludes else ""
    yield "metric", f"{metric.text} ({metric.statistic}{excludes}); lower is better"
    words = {"target": "the target is reached", "epochs": "all epochs of the metric are trained",
             "samples": "the counts of the dataset agree", "seeds": "no two runs share a seed"}  # fmt: skip
    yield "valid", "; ".join(words[condition] for condition in scenario.validity) or "always"
    yield "reported", ", ".join(TITLES[column] for column in scenario.columns)


def setting_rows(campaign: Campaign, scenario: Scenario) -> Iterator[list[str]]:
    """A row for each rule, and rows for settings that no rule names."""
    for rule in scenario.rules:
        cells = [rule_cell(scenario, rule, category) for category in campaign.categories]
        yield [", ".join(rule.settings), *cells, rule.rule]
    yield ["all other that decide a result", *(category.others for category in campaign.categories), ""]
    yield ["threads, readers, paths, wire-up", *("free" for _ in campaign.categories), ""]


def rule_cell(scenario: Scenario, rule: SettingRule, category: Category) -> str:
    """What a rule says in a category."""
    if rule.categories and category.name not in rule.categories:
        return ""
    if rule.kind == "bounded":
        return bounds_words(rule)
    if rule.kind == "fixed" and len(rule.settings) == 1 and rule.settings[0] in scenario.recipe:
        return shown(scenario.recipe[rule.settings[0]])
    return rule.kind


def response_table(scenario: Scenario, rows: Sequence[ResponseRow]) -> str:
    """The rows in the columns of ``table_columns``, and below the table what all rows share."""
    columns = table_columns(scenario, rows)
    titles = [SHORT.get(column, TITLES[column]) for column in columns]
    numbers = [title for title, column in zip(titles, columns, strict=True) if column not in TEXTS]
    lines = [table(titles, [[row.text(column) for column in columns] for row in rows], right=numbers)]
    return "\n".join([*lines, *(part for line in beside_table(scenario, rows) for part in filled(line, "", "  "))])


def table_columns(scenario: Scenario, rows: Sequence[ResponseRow]) -> list[Column]:
    """The columns in which rows differ, and those of ``KEPT``."""
    return [column for column in known_columns(scenario, rows) if column in KEPT or len(texts(rows, column)) > 1]


def beside_table(scenario: Scenario, rows: Sequence[ResponseRow]) -> list[str]:
    """What all rows share, and the systems, whose names are long."""
    columns = table_columns(scenario, rows)
    alike = [column for column in known_columns(scenario, rows) if column not in columns]
    lines = (
        ["in all rows: " + ", ".join(f"{TITLES[column]} {rows[0].text(column)}" for column in alike)] if alike else []
    )
    if "samples_per_s_per_accelerator" in columns:
        lines.append("samples/s are those of an accelerator (acc.)")
    lines += [f"here: {name}" for name in dict.fromkeys(row.text("system") for row in rows if row.kind == "run")]
    notes = {reference.system: reference.note for reference in scenario.references}
    names = {row.text("system"): row.text("replicate") for row in rows if row.kind == "reference"}
    for name, replicate in names.items():
        label = replicate.replace("ref.", "reference") if len(names) == 1 else replicate
        lines.append(f"{label}: {name}" + (f" ({notes[name]})" if notes.get(name) else ""))
    return lines


def known_columns(scenario: Scenario, rows: Sequence[ResponseRow]) -> list[Column]:
    """The columns of the scenario that any row has, without the names of scenario and system."""
    return [column for column in shown_columns(scenario) if column not in ("scenario", "system")
            and any(row.cells.get(column) is not None for row in rows)]  # fmt: skip


def texts(rows: Sequence[ResponseRow], column: Column) -> set[str]:
    """The different cells of a column."""
    return {row.text(column) for row in rows}


def shown_columns(scenario: Scenario) -> list[Column]:
    """The columns of the scenario, with the replicate of a row, which tells runs and references apart."""
    columns = list(scenario.columns)
    if "replicate" not in columns:
        columns.insert(min(1, len(columns)), "replicate")
    return columns
