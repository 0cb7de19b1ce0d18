"""What pages say of a search: its method, its runs, and those that are still to be made."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from hpcbench.study.convergence import read_statuses, report
from hpcbench.study.curve_plots import hide_unused, search
from hpcbench.study.definition import Borrow, Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.rates import Rate
from hpcbench.study.results import read_rows
from hpcbench.study.search_notes import effort
from hpcbench.study.table import plan_table
from tests.hpcbench.study.conftest import FakeLauncher, make


@pytest.mark.slow
def test_all_that_a_search_tried_is_shown(study: Study, tmp_path: Path) -> None:
    """At batch 8 sgd gets better up to eight times the rule's rate and beyond; adamw is best at the rule's."""
    searching = replace(
        study, batch_sizes=(8, 64), lr_search=(0.5, 1.0, 2.0), lr_search_seeds=2, lr_search_widen=2,
        optimizers=("sgd", "adamw", "larc"), rates={**study.rates, "larc": Rate(0.01, 64)}, only={"larc": (64,)},
    )  # fmt: skip

    def epochs(settings: dict[str, str]) -> float:
        batch = int(settings["train.local_batch_size"]) * int(settings.get("parallel.simulated_ranks", 1))
        multiple = float(settings["optim.lr"]) / searching.rates[settings["optim.name"]].at(batch)
        best = 32 if (settings["optim.name"], batch) == ("sgd", 8) else 1
        return 5 + abs(math.log2(multiple / best)) + 3 * (int(settings["train.seed"]) > 2)

    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write(searching.as_dict())
        make(searching, folder, launcher := FakeLauncher(epochs))
        report(folder)
    text = " ".join(folder.table.read_text(encoding="utf-8").split())
    assert "The better half gets a further seed, up to 2 (successive halving)." in text
    assert "all rows of its optimizer try a further multiple, at most twice." in text
    counts = "Runs that chose rates: sgd 16 at 0.5 to 8; adamw 10 at 0.5 to 2; larc 5 at 0.5 to 2."
    assert counts in text
    assert counts in folder.page.read_text(encoding="utf-8")
    first = {name: state for name, state in read_statuses(searching, folder).items() if name == "b8-sgd-x1-search"}
    begun = effort(searching, read_rows(searching, first))
    assert begun == ["sgd 1 of 6 at 0.5 to 2", "adamw 0 of 6 at 0.5 to 2", "larc 0 of 3 at 0.5 to 2"]
    assert len(launcher.started) == 16 + 10 + 5 + 5 * 2
    frame = pd.read_csv(folder.results)
    assert frame["role"].value_counts().to_dict() == {"search": 31, "seed": 10}
    statuses = read_statuses(searching, folder)
    rows = {row.point.name: row for row in read_rows(searching, statuses)}
    assert [name for name, row in rows.items() if row.at_edge] == ["b8-sgd"]
    assert plan_table(searching, statuses).splitlines()[2].split()[-3:] == ["8", "2", "0"]
    assert "0.00063 0.0013 0.0025" in plan_table(searching, {})
    assert "0.00031 to 0.0050 (5)" in plan_table(replace(searching, lr_search=(0.25, 0.5, 1, 2, 4)), {})
    drawn = search(searching, list(rows.values()))
    assert drawn is not None
    sgd = drawn.figure.axes[0]
    assert sgd.get_xticks().tolist() == [0.5, 1, 2, 4, 8]
    dots = [value for line in sgd.lines if line.get_marker() == "o" for value in np.asarray(line.get_xdata())]
    assert {0.5, 8} <= set(dots)
    assert len(dots) == 16 + 4, "every run, and a ring for each seed of the chosen rates"


def test_a_rate_that_was_chosen_among_misses_is_ringed(study: Study, tmp_path: Path) -> None:
    searching = replace(study, batch_sizes=(8,), optimizers=("sgd",), lr_search=(0.5, 1.0, 2.0), lr_search_widen=0)
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write(searching.as_dict())
        make(searching, folder, FakeLauncher(lambda _: 99))
    drawn = search(searching, read_rows(searching, read_statuses(searching, folder)))
    assert drawn is not None
    lines = drawn.figure.axes[0].lines
    places = {mark: [float(np.asarray(line.get_xdata())[0]) for line in lines if line.get_marker() == mark]
              for mark in ("x", "o")}  # fmt: skip
    assert sorted(places["x"]) == [0.5, 1, 2]
    assert places["o"] == [1]


def test_a_search_of_failed_runs_is_told_as_failed_and_not_as_diverged(study: Study, tmp_path: Path) -> None:
    searching = replace(study, batch_sizes=(8,), lr_search=(1.0, 2.0), borrow=(Borrow("8", 32),))
    folder = StudyFolder(tmp_path / "study")

    def epochs(settings: dict[str, str]) -> float:
        if settings["optim.name"] == "adamw":
            return 5
        return math.nan if float(settings["optim.lr"]) == searching.rates["sgd"].at(8) else math.inf

    with held(folder):
        folder.write(searching.as_dict())
        make(searching, folder, FakeLauncher(epochs))
        report(folder)
    text, page = folder.table.read_text(encoding="utf-8"), folder.page.read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if re.match(r" *\d+ +sgd", line)]
    assert [line[-11:-6] for line in lines] == [["-", "runs", "failed", "not", "run"]] * 2
    note = "No rate before a retry, since runs of the search failed and no other reached or missed the target: sgd at 8"
    assert note in " ".join(text.split())
    for said in (note, "No rate is chosen for sgd at batch 8: runs of its search failed", "diverged or failed"):
        assert said in page
    assert "Every run of the search" not in page
    assert "sgd: no run reached" not in page
    assert not list((folder.path / "runs").glob("*-sgd-*seed*"))


@pytest.mark.parametrize(("used", "labelled"), [(6, [2, 3, 4, 5]), (8, [4, 5, 6, 7]), (5, [1, 2, 3, 4])])
def test_the_lowest_panel_of_each_column_labels_its_axis(used: int, labelled: list[int]) -> None:
    """``sharex`` labels those of the last row alone, though there the last may be hidden."""
    grid = Figure().subplots(2, 4, sharex=True)
    hide_unused(grid, used)
    panels = list(grid.flat)
    assert [axes.get_visible() for axes in panels] == [number < used for number in range(8)]
    with_labels = [number for number in range(used) if panels[number].xaxis.get_tick_params()["labelbottom"]]
    assert with_labels == labelled
