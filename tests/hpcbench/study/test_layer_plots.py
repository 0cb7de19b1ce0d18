"""The plot of what each step does to the layers: its curves are medians of the recorded ratios and norms."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from hpcbench.results.records import Run
from hpcbench.results.run_folder import RunFolder
from hpcbench.study.convergence import read_statuses
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.layer_plots import layer_medians, layers
from hpcbench.study.rates import Rate
from hpcbench.study.results import read_curves, read_rows
from hpcbench.train.trust_ratios import COLUMNS
from tests.hpcbench.conftest import build
from tests.hpcbench.study.conftest import FakeLauncher, make

LAYERS = {"a.weight": (0.1, 2.0, 0.02), "b.weight": (0.2, 4.0, 0.08), "c.weight": (0.4, 1.0, 0.05), "c.bias": (1, 3, 3)}
"""Trust ratio, norm of the weights and of their change, of the first recorded step."""


def record(folder: RunFolder, steps: int = 2) -> None:
    """Norms double from one recorded step to the next; a bias is not adapted."""
    rows = [
        (1, 10 * step, name, 0.5, ratio, norm * 2 ** (step - 1), change * 2 ** (step - 1))
        for step in range(1, steps + 1)
        for name, (ratio, norm, change) in LAYERS.items()
    ]
    pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(folder.trust_ratios, index=False)


def test_curves_are_medians_over_the_layers_that_are_adapted(tmp_path: Path) -> None:
    folder = RunFolder(build(tmp_path / "run", global_batch_size=8, train_samples=40))
    run = Run(folder, folder.read_summary(), folder.read_epochs(), pd.DataFrame())
    assert layer_medians(run) is None
    record(folder)
    found = layer_medians(run)
    assert found is not None
    assert list(found.index) == [10 * 8 / 40, 20 * 8 / 40]
    assert list(found["rate"]) == pytest.approx([0.1, 0.1])
    assert list(found["change"]) == pytest.approx([0.02, 0.02])
    assert list(found["growth"]) == [1, 2]
    folder.trust_ratios.write_text("epoch,step,layer,trust_ratio\n1,10,a.weight,0.1\n")
    assert layer_medians(run) is None, "a table of an earlier version has no norms"


def test_a_study_draws_a_line_of_panels_for_each_series_that_recorded(tmp_path: Path) -> None:
    study = Study("cosmoflow", "smoke", (8, 32), ("lars", "sgd"), 1, 4, {n: Rate(0.1, 64) for n in ("lars", "sgd")})
    folder = StudyFolder(tmp_path / "study")
    with held(folder):
        folder.write(study.as_dict())
        make(study, folder, FakeLauncher(lambda settings: 99.0 if "32" in settings["optim.base_batch_size"] else 4.0))
    rows = read_rows(study, read_statuses(study, folder))
    assert layers(study, rows, read_curves(folder, rows)) is None
    for name in ("b8-lars-x1-seed1", "b32-lars-x1-seed1"):
        record(RunFolder(folder.run(name)))
    drawn = layers(study, rows, read_curves(folder, rows))
    assert drawn is not None
    panels = drawn.figure.axes
    assert len(panels) == 3
    assert [[line.get_linestyle() for line in axes.lines] for axes in panels] == [["-", "--"]] * 3
    assert list(panels[1].lines[0].get_ydata()) == pytest.approx([0.02, 0.02])
