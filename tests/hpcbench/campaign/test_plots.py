"""The plot of a scenario: its axes say their scale, and its finding is the lowest of the user's own figures."""

from __future__ import annotations

import pytest

from hpcbench.campaign.plots import metric_plot
from hpcbench.campaign.response import FIGURES, ResponseRow, row_of_reference
from tests.hpcbench.campaign.made_up import shipped

SCENARIO = next(each for each in shipped("nersc10-deepcam").scenarios if each.references)
REFERENCES = [row_of_reference(SCENARIO, reference) for reference in SCENARIO.references]


def own_row(accelerators: int, value: float) -> ResponseRow:
    """The figure of a size."""
    column = FIGURES[SCENARIO.metric.what]
    return ResponseRow("result", {"category": "baseline", "accelerators": accelerators, column: value})


def test_the_lowest_of_your_figures_is_told() -> None:
    drawn = metric_plot(SCENARIO, [*REFERENCES, own_row(4, 900.0), own_row(8, 480.5)], False)
    assert drawn is not None
    assert drawn.finding == "The lowest of your figures is 480.5 s, on 8 accelerators (baseline)"
    for rows, rehearsal in ((REFERENCES, False), ([own_row(4, 9.0)], True)):
        silent = metric_plot(SCENARIO, rows, rehearsal)
        assert silent is not None
        assert silent.finding == "", "references are not yours, and a rehearsal has small numbers"


def test_a_run_that_does_not_count_is_drawn_as_one() -> None:
    column = FIGURES[SCENARIO.metric.what]
    runs = [
        ResponseRow("run", {"category": "baseline", "accelerators": 4, column: value, "valid": valid})
        for value, valid in ((900.0, "yes"), (100.0, "no"))
    ]
    drawn = metric_plot(SCENARIO, [*runs, own_row(4, 900.0)], False)
    assert drawn is not None
    (axes,) = drawn.figure.axes
    assert {(line.get_marker(), tuple(line.get_ydata())) for line in axes.lines} == {("o", (900.0,)), ("x", (100.0,))}
    assert "does not count, baseline" in [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(("largest", "scale"), [(3.9, "linear"), (4.1, "log")])
def test_a_small_range_is_linear_and_a_label_says_which(largest: float, scale: str) -> None:
    drawn = metric_plot(SCENARIO, [own_row(4, 100.0), own_row(8, 100 * largest)], False)
    assert drawn is not None
    (axes,) = drawn.figure.axes
    assert axes.get_yscale() == scale
    assert axes.get_ylabel() == f"seconds of epochs{'' if scale == 'linear' else ', log scale'}"
    assert drawn.caption.startswith("Seconds from the start of epoch 1 to the end of epoch 16 (s; lower is better).")
    assert axes.get_xlabel() == "accelerators, log scale"
