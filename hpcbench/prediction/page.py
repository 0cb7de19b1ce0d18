"""The page of a prediction: self-contained HTML."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.application_names import application_name
from hpcbench.prediction.plots import parts_figure
from hpcbench.prediction.predictions import Predicted, Predictions
from hpcbench.prediction.tables import SOURCE, advice_sheet, heading, made, minutes, notes, sheets, span
from hpcbench.results.report import Drawn
from hpcbench.results.units import counted

PAGE = "prediction.html"


def page_of(found: Predictions) -> str:
    """The page as HTML text."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.prediction"), PackageLoader("hpcbench.results")]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    names = " and ".join(application_name(each.request.application) for each in found.predicted)
    return environment.get_template(PAGE).render(
        version=__version__, page_title=f"{names} on {found.options.machine.name}: prediction", source=SOURCE,
        machine=found.options.machine.title, software=found.options.software, title=f"{names}: time to solution",
        findings=[finding(each) for each in found.predicted],
        applications=[section(each, found) for each in found.predicted],
        advice=advice_sheet(found) if found.advice else None,
    )  # fmt: skip


def section(each: Predicted, found: Predictions) -> dict[str, Any]:
    """What the page shows for an application."""
    return {
        "name": each.request.application, "heading": heading(each, found), "figure": Drawn.of(parts_figure(each)),
        "sheets": sheets(each), "notes": notes(each),
    }  # fmt: skip


def finding(each: Predicted) -> str:
    """The fastest size in a sentence."""
    fastest = min(made(each), key=lambda one: one.time.central)
    training = fastest.training
    nodes = counted(training.nodes, "node")
    return (
        f"{application_name(each.request.application)} takes {minutes(fastest.time.central)} minutes on {nodes} "
        f"({training.ranks:,} accelerators, batch {training.global_batch:,}); 80 % interval {span(fastest.time)}."
    )
