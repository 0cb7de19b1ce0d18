"""The page of a campaign's response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.campaign.content import (
    REHEARSAL,
    Content,
    heading,
    metric_column,
    notes,
    scenario_heading,
    size_lines,
)
from hpcbench.campaign.cost import cost_lines
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.plots import metric_plot
from hpcbench.campaign.response import SHORT, TITLES, ResponseRow
from hpcbench.campaign.rules import Column, Scenario
from hpcbench.campaign.show import TEXTS, beside_table, facts, setting_rows, table_columns
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.report import Drawn, write_page


def write_campaign_page(content: Content, folder: CampaignFolder) -> None:
    """Write ``campaign.html`` into the folder."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.campaign"), PackageLoader("hpcbench.results")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    text = environment.get_template("campaign.html").render(
        version=__version__, page_title=heading(content), heading=heading(content), campaign=content.campaign,
        rehearsal=REHEARSAL if content.rehearsal else "", acceptance=content.acceptance,
        not_verified=f"{NOT_VERIFIED}.",
        scenarios=[scenario_part(content, number) for number in range(len(content.scenarios))],
        notes=[note for note in notes(content) if not note.startswith(NOT_VERIFIED)],
    )  # fmt: skip
    write_page(folder.page, text)


def scenario_part(content: Content, number: int) -> dict[str, Any]:
    """What the page shows of one scenario."""
    scenario, results, rows = content.scenarios[number]
    plot = metric_plot(scenario, rows, content.rehearsal)
    columns = table_columns(scenario, rows)
    return {
        "name": scenario.name, "heading": scenario_heading(content, scenario), "metric": metric_column(scenario),
        "lines": [*size_lines(content, results), *cost_lines(scenario, rows)],
        "figure": None if plot is None else Drawn.of(plot),
        "columns": [(SHORT.get(column, TITLES[column]), column not in TEXTS) for column in columns],
        "beside": beside_table(scenario, rows),
        "rows": [cells_of(row, columns) for row in rows],
        "facts": list(facts(scenario)),
        "categories": [category.name for category in content.campaign.categories],
        "settings": settings_of(content, scenario),
    }  # fmt: skip


def cells_of(row: ResponseRow, columns: Sequence[Column]) -> dict[str, Any]:
    """A row of the table: its kind, and its cells with whether each is a number."""
    return {"kind": row.kind, "cells": [(row.text(column), column not in TEXTS) for column in columns]}


def settings_of(content: Content, scenario: Scenario) -> list[list[str]]:
    """What each rule says in each category; for a rehearsal with its own numbers."""
    return list(setting_rows(content.campaign, scenario))
