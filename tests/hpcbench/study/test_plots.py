"""What the plots of a convergence study show of rows that missed the target, and of rows that were not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from hpcbench.results.plots import Figure
from hpcbench.study import plots
from hpcbench.study.convergence import read_statuses
from hpcbench.study.definition import Borrow, Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.results import read_rows
from tests.hpcbench.study.conftest import FakeLauncher, make

Settings = Mapping[str, str]


def drawn(study: Study, path: Path, epochs_to_target: Callable[[Settings], int]) -> list[Figure]:
    """The plots of a study with a search whose runs need so many epochs."""
    searching = replace(study, lr_search=(0.5, 1.0, 2.0), borrow=(Borrow("8", 32),))
    folder = StudyFolder(path / "study")
    with held(folder):
        folder.write(searching.as_dict())
        make(searching, folder, FakeLauncher(epochs_to_target))
        rows = read_rows(searching, read_statuses(searching, folder))
    figures = plots.epochs(searching, rows, {}), plots.samples_and_steps(searching, rows)
    return [figure for figure in figures if figure is not None]


def crosses(axes: Axes) -> list[float]:
    """Where crosses stand at the top, as the nearest batch sizes."""
    lines = [line for line in axes.lines if line.get_marker() == "x"]
    return sorted(float(line.get_xdata()[0]) for line in lines)  # type: ignore[arg-type, index]


def test_a_row_that_was_not_run_has_neither_a_cross_nor_a_place_in_the_legend(study: Study, tmp_path: Path) -> None:
    """sgd never reaches the target, so that its rate is not lent."""
    figures = drawn(study, tmp_path, lambda settings: 99 if settings["optim.name"] == "sgd" else 5)
    assert len(figures) == 2
    for figure in figures:
        (legend,) = figure.figure.legends
        labels = [text.get_text() for text in legend.get_texts()]
        assert "sgd" in labels
        assert "adamw from 8" in labels
        assert "sgd from 8" not in labels
    epochs, samples_and_steps = (figure.figure.axes for figure in figures)
    for axes in (epochs[0], *samples_and_steps):
        assert crosses(axes) == pytest.approx([8, 32], rel=0.1), "sgd missed at both batches; nothing else did"


def test_the_share_that_reached_the_target_stands_beside_its_own_marker(study: Study, tmp_path: Path) -> None:
    """In each plot: epochs, samples and steps have scales of their own."""

    def some(settings: Settings) -> int:
        return 99 if settings["optim.name"] == "sgd" and settings["run-dir"].endswith("seed2") else 5

    figures = drawn(study, tmp_path, some)
    texts = []
    for axes in [axes for figure in figures for axes in figure.figure.axes]:
        hollow = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axes.lines  # type: ignore[arg-type, index]
                  if line.get_markerfacecolor() == "white"]  # fmt: skip
        for text in axes.texts:
            assert any(text.xy == pytest.approx(marker) for marker in hollow)  # type: ignore[attr-defined]
            texts.append(text.get_text())
    assert texts == 6 * ["1 of 2"], "at two batches in three plots; a borrowed rate with the same mean shares its text"


def test_a_share_is_written_where_nothing_else_is() -> None:
    taken = [(0.0, 0.0), (20.0, -8.0), (-20.0, 5.0)]
    first, second = plots.free_place((0.0, 0.0), taken), plots.free_place((0.0, 0.0), taken)
    assert (first, second) == ((19, 7), (-19, -7)), "right of it and above, then left of it and below"
    assert taken[-2:] == [(19.0, 7.0), (-19.0, -7.0)]
