"""Predictions as text for the screen."""

from __future__ import annotations

import textwrap

from hpcbench.prediction.notes import notes
from hpcbench.prediction.predictions import Predictions
from hpcbench.prediction.tables import SOURCE, advice_sheet, heading, sheets
from hpcbench.results.tables import WIDTH


def text_of(predictions: Predictions) -> str:
    """Everything, within 100 columns."""
    blocks: list[str] = []
    for prediction in predictions.predicted:
        blocks.append(heading(prediction, predictions))
        blocks += [sheet.as_text() for sheet in sheets(prediction)]
        blocks.append("\n".join(textwrap.fill(note, WIDTH - 2, subsequent_indent="  ") for note in notes(prediction)))
    if predictions.advice:
        blocks.append(advice_sheet(predictions).as_text())
    return "\n\n".join([*blocks, textwrap.fill(SOURCE, WIDTH - 2)])
