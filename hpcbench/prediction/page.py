"""The page of a prediction: self-contained HTML."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.application_names import application_name
from hpcbench.prediction.notes import notes
from hpcbench.prediction.plots import parts_figure
from hpcbench.prediction.predictions import Predicted, Predictions
from hpcbench.prediction.tables import SOURCE, advice_sheet, heading, made, minutes, sheets, span
from hpcbench.results.report import Drawn
from hpcbench.results.units import counted

PAGE = "prediction.html"


def page_of(predictions: Predictions) -> str:
    """The page as HTML text."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.prediction"), PackageLoader("hpcbench.results")]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    names = " and ".join(application_name(prediction.request.application) for prediction in predictions.predicted)
    return environment.get_template(PAGE).render(
        version=__version__, page_title=f"{names} on {predictions.options.machine.name}: prediction", source=SOURCE,
        machine=predictions.options.machine.title, software=predictions.options.software,
        title=f"{names}: time to solution", findings=[finding(prediction) for prediction in predictions.predicted],
        applications=[section(prediction, predictions) for prediction in predictions.predicted],
        advice=advice_sheet(predictions) if predictions.advice else None,
    )  # fmt: skip


def section(prediction: Predicted, predictions: Predictions) -> dict[str, Any]:
    """What the page shows for an application."""
    return {
        "name": prediction.request.application, "heading": heading(prediction, predictions),
        "figure": Drawn.of(parts_figure(prediction)), "sheets": sheets(prediction), "notes": notes(prediction),
    }  # fmt: skip


def finding(prediction: Predicted) -> str:
    """The fastest size in a sentence."""
    fastest = min(made(prediction), key=lambda one: one.time.central)
    training = fastest.training
    nodes = counted(training.nodes, "node")
    return (
        f"{application_name(prediction.request.application)} takes {minutes(fastest.time.central)} minutes on {nodes} "
        f"({counted(training.ranks, 'accelerator')}, batch {training.global_batch:,}); 80 % interval "
        f"{span(fastest.time)}."
    )
