"""Every figure that the suite draws: logarithmic axes say so, shaded areas are explained, and findings are told."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas

from hpcbench.results.plots import Figure
from hpcbench.results.report import LONGEST_HEADING, Drawn
from tests.hpcbench.figure_recorder import Recorder, drawing_functions, recording, unnamed_areas, unnamed_log_axes
from tests.hpcbench.figure_samples import SAMPLES

Pages = dict[str, list[Path]]
SILENT = {"What the network sees", "Weather, labels and predictions"}
"""Pictures of samples, of which nothing is said, on the pages of runs."""
WITH_FINDINGS = ("runs", "convergence", "scaling", "gains", "analysis")
"""The samples whose pages have figures."""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorder, Pages]:
    """All samples, and the pages that they wrote."""
    with recording() as recorder:
        pages = {name: draw(tmp_path_factory.mktemp(name)) for name, draw in SAMPLES.items()}
    return recorder, pages


@pytest.mark.slow
def test_every_function_that_draws_has_a_sample(drawn: tuple[Recorder, Pages]) -> None:
    """A new one must be drawn in ``figure_samples``, so that the checks below see it."""
    assert drawing_functions() - drawn[0].drawers == set()


def test_logarithmic_axes_say_so(drawn: tuple[Recorder, Pages]) -> None:
    recorder, _ = drawn
    unnamed = [(recorder.names_of(canvas), axes) for canvas in recorder.canvases for axes in unnamed_log_axes(canvas)]
    assert unnamed == []


def test_shaded_areas_are_in_the_caption_or_the_legend(drawn: tuple[Recorder, Pages]) -> None:
    assert {name for _, name, _ in drawn[0].areas} >= {"fill_between", "axvspan"}
    assert unnamed_areas(drawn[0]) == []


def test_an_axis_and_an_area_that_nothing_names_are_found() -> None:
    with recording() as recorder:
        canvas = Canvas()
        axes = canvas.subplots()
        axes.set(xscale="log", yscale="log", xlabel="nodes, log scale", ylabel="logged values")
        axes.fill_between([1, 2], [1, 1], [2, 2], label="not in a legend")
    assert unnamed_log_axes(canvas) == ["panel 0, y"]
    assert unnamed_areas(recorder) == ["a canvas without a caption: fill_between"]
    axes.legend()
    assert unnamed_areas(recorder) == []


@pytest.mark.parametrize("name", WITH_FINDINGS)
def test_alternative_texts_tell_the_finding(drawn: tuple[Recorder, Pages], name: str) -> None:
    recorder, pages = drawn
    findings = {figure.alternative: figure.finding for figure in recorder.figures}
    for page in pages[name]:
        shown = re.findall(r'aria-label="([^"]*)"', page.read_text(encoding="utf-8"))
        assert shown, page
        told = {text: findings[html.unescape(text)] for text in shown}
        assert {text for text, finding in told.items() if not finding} <= SILENT, page
        assert all(not finding.endswith(".") for finding in told.values())


def test_figures_of_predictions_and_characterisations_tell_their_finding(drawn: tuple[Recorder, Pages]) -> None:
    findings = {figure.name: figure.finding for figure in drawn[0].figures}
    assert all(findings[name] for name in ("roofline", "least_times", "parts-cosmoflow"))
    assert findings["parts-cosmoflow"].startswith("8.00 minutes on 4 nodes, the fastest; ")


def test_a_finding_is_the_heading_and_the_title_leads_the_caption() -> None:
    figure = Figure("a", "Epochs", "Dots are runs.", Canvas(), "A < B")
    found = Drawn.around(figure, "<svg></svg>")
    assert (found.heading, found.caption) == ("A < B", "Epochs. Dots are runs.")
    plain = Drawn.around(figure, "<svg></svg>", titled=True)
    assert (plain.heading, plain.caption) == ("Epochs", "Dots are runs.")
    silent = Drawn.around(Figure("a", "Epochs", "", Canvas()), "<svg></svg>")
    assert (silent.heading, silent.caption) == ("Epochs", "")
    long = Drawn.around(Figure("a", "Which?", "", Canvas(), "b" * (LONGEST_HEADING + 1)), "<svg></svg>")
    assert (long.heading, long.caption) == ("Which?", f"{'b' * (LONGEST_HEADING + 1)}.")
    assert Figure("a", "Which?", "", Canvas(), "This").alternative == "Which? This"


def test_findings_in_alternative_texts_are_escaped() -> None:
    canvas = Canvas()
    svg = Drawn.of(Figure("a", "Epochs", "", canvas, 'A < "B"')).svg
    assert 'aria-label="Epochs: A &lt; &#34;B&#34;"' in svg
