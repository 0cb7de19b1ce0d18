"""Every file of a convergence study with a time to the target says that nobody verified it, and its page does."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.results import style
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.study import plots
from hpcbench.study.convergence import read_statuses, report
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.rates import Rate
from hpcbench.study.results import read_rows
from tests.hpcbench.study.conftest import FakeLauncher, make


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyFolder]:
    """A study that is done, and its folder with tables and page."""
    study = Study("cosmoflow", "smoke", (8, 32), ("sgd",), 2, 4, {"sgd": Rate(0.01, 64)})
    folder = StudyFolder(tmp_path_factory.mktemp("studies") / "made")
    with held(folder):
        folder.write(study.as_dict())
        make(study, folder, FakeLauncher(lambda settings: 3.0 + int(settings["train.seed"]) % 2))
        report(folder)
    return study, folder


def test_the_tables_say_it(made: tuple[Study, StudyFolder]) -> None:
    _, folder = made
    assert set(pd.read_csv(folder.results)["verified"]) == {NOT_VERIFIED}
    lines = folder.table.read_text(encoding="utf-8").splitlines()
    rows = [number for number, line in enumerate(lines) if line.strip().startswith(("8 ", "32 "))]
    assert lines[rows[-1] + 1 : rows[-1] + 3] == ["", f"{NOT_VERIFIED}."], "below the table with the times"


def test_the_page_says_it_at_its_foot_and_below_the_plot_of_times(made: tuple[Study, StudyFolder]) -> None:
    page = made[1].page.read_text(encoding="utf-8")
    (footer,) = re.findall(r"<footer>.*?</footer>", page, re.DOTALL)
    assert footer.count(NOT_VERIFIED) == 1
    assert page.count(f">{NOT_VERIFIED}</text>") == 1
    assert page.count(NOT_VERIFIED) == 2


def test_the_plot_of_times_says_it(made: tuple[Study, StudyFolder], tmp_path: Path) -> None:
    study, folder = made
    figure = plots.time_to_solution(study, read_rows(study, read_statuses(study, folder)), 50.0, "50 samples/s")
    assert figure is not None
    assert figure.figure.get_supxlabel() == NOT_VERIFIED
    assert f">{NOT_VERIFIED}</text>" in style.save(figure.figure, tmp_path / "time.svg").read_text(encoding="utf-8")
