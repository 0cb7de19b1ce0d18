"""Runs that trained alike are found, also where they diverged, and runs that only ended alike are told apart."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from hpcbench.study.convergence import read_statuses
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder
from hpcbench.study.rates import Rate
from hpcbench.study.results import Row, read_curves, read_rows
from hpcbench.study.series_comparison import compare_series
from hpcbench.study.trajectories import mark_copies
from tests.hpcbench.study.conftest import FakeLauncher, make

COPIES = {f"b8-{name}-reshuffle-x1-seed{seed}": f"b8-{name}-shard-x1-seed{seed}"
          for name in ("sgd", "lars") for seed in (1, 2)}  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> tuple[Study, StudyFolder]:
    """Fixed shards and reshuffled ones, of two optimizers, all of whose runs diverge in the first epoch."""
    study = Study(
        "cosmoflow", "smoke", (8,), ("sgd", "lars"), 2, 4, {"sgd": Rate(0.1, 64), "lars": Rate(0.1, 64)}, nodes=2,
        placements=("shard", "shard+reshuffle"),
    )  # fmt: skip
    folder = StudyFolder(tmp_path / "study")
    make(study, folder, FakeLauncher(lambda _: math.inf))
    return study, folder


def rows_of(study: Study, folder: StudyFolder) -> list[Row]:
    rows = read_rows(study, read_statuses(study, folder))
    assert all(state.status == "diverged" for row in rows for _, state in row.runs)
    return mark_copies(rows, read_curves(folder, rows))


@pytest.mark.parametrize("evaluated", [True, False])
def test_runs_that_diverged_alike_are_one_observation(made: tuple[Study, StudyFolder], evaluated: bool) -> None:
    """Before the first evaluation, at the step and for the reason that their summaries have."""
    if not evaluated:
        for path in (made[1].path / "runs").glob("*/epochs.csv"):
            path.unlink()
    rows = rows_of(*made)
    assert {name: original for row in rows for name, original in row.copies.items()} == COPIES
    assert {len(row.distinct) for row in rows} == {2}, "seeds that diverge at the same step are two observations"
    same = [pair for pair in compare_series(rows) if pair.comparison is None]
    assert len(same) == 2, "the placements of each optimizer"


def test_runs_that_diverged_after_other_evaluations_or_at_other_steps_are_not_alike(
    made: tuple[Study, StudyFolder],
) -> None:
    study, folder = made
    first = folder.run("b8-sgd-shard-x1-seed1")
    shutil.copy(folder.run("b8-lars-shard-x1-seed1") / "epochs.csv", first / "epochs.csv")
    summary = folder.run("b8-lars-shard-x1-seed2") / "summary.json"
    summary.write_text(summary.read_text(encoding="utf-8").replace("at step 7", "at step 9"), encoding="utf-8")
    found = {name for row in rows_of(study, folder) for name in row.copies}
    assert found == set(COPIES) - {"b8-sgd-reshuffle-x1-seed1", "b8-lars-reshuffle-x1-seed2"}
