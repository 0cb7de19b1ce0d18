"""What the plots of a convergence study show of rows that missed the target, and of rows that were not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.results.plots import Figure
from hpcbench.study import plots
from hpcbench.study.convergence import read_statuses
from hpcbench.study.definition import Borrow, Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.results import read_rows
from tests.hpcbench.study.conftest import FakeLauncher, make


def drawn(study: Study, path: Path) -> list[Figure]:
    """The plots of a study with a search, in which sgd never reaches the target, so that its rate is not lent."""
    searching = replace(study, lr_search=(0.5, 1.0, 2.0), borrow=(Borrow("8", 32),))
    folder = StudyFolder(path / "study")
    with held(folder):
        folder.write(searching.as_dict())
        make(searching, folder, FakeLauncher(lambda s: 99 if s["optim.name"] == "sgd" else 5))
        rows = read_rows(searching, read_statuses(searching, folder))
    figures = plots.epochs(searching, rows, {}), plots.samples_and_steps(searching, rows)
    return [figure for figure in figures if figure is not None]


def crosses(figure: Figure) -> list[float]:
    """Where crosses stand at the top, as the nearest batch sizes."""
    lines = [line for axes in figure.figure.axes for line in axes.lines if line.get_marker() == "x"]
    return sorted(float(line.get_xdata()[0]) for line in lines)  # type: ignore[arg-type, index]


def test_a_row_that_was_not_run_has_neither_a_cross_nor_a_place_in_the_legend(study: Study, tmp_path: Path) -> None:
    figures = drawn(study, tmp_path)
    assert len(figures) == 2
    for figure in figures:
        (legend,) = figure.figure.legends
        labels = [text.get_text() for text in legend.get_texts()]
        assert "sgd" in labels
        assert "adamw from 8" in labels
        assert "sgd from 8" not in labels
        assert crosses(figure) == pytest.approx([8, 32], rel=0.1), "sgd missed at both batches; nothing else did"
