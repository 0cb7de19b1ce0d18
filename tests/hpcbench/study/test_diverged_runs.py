"""A run that diverges says that its recipe does not reach the target, however early it broke down."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from hpcbench.study.convergence import read_statuses
from hpcbench.study.definition import Study
from hpcbench.study.epoch_comparison import compare
from hpcbench.study.folder import StudyFolder
from hpcbench.study.rates import Rate
from hpcbench.study.results import Row, read_rows
from tests.hpcbench.study.conftest import FakeLauncher, make

EPOCHS = 30


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Five seeds of two optimizers: sgd meets the target after four epochs, adamw diverges in the first."""
    study = Study(
        "cosmoflow", "smoke", (32,), ("sgd", "adamw"), 5, 4,
        {"sgd": Rate(0.01, 64), "adamw": Rate(0.001, 64, "sqrt")}, settings={"train.max_epochs": str(EPOCHS)},
    )  # fmt: skip
    folder = StudyFolder(tmp_path_factory.mktemp("studies") / "diverging")
    make(study, folder, FakeLauncher(lambda given: math.inf if given["optim.name"] == "adamw" else 4.0))
    return {row.point.optimizer: row for row in read_rows(study, read_statuses(study, folder))}


def test_it_counts_as_one_that_missed_and_not_as_a_short_one(rows: dict[str, Row]) -> None:
    """When they ended, nothing had met the target yet; censored there, the two rows would look equal."""
    assert {state.summary.epochs for _, state in rows["adamw"].runs if state.summary} == {1}
    assert [(run.above, run.up_to) for run in rows["adamw"].epoch_runs] == [(EPOCHS, math.inf)] * 5
    compared = compare([(rows["sgd"].epoch_runs, rows["adamw"].epoch_runs)])
    assert compared is not None
    assert compared.p == pytest.approx(2 / 252)
    assert compared.ratio < 1


def test_one_that_diverges_before_the_first_epoch_ends_counts_too(rows: dict[str, Row]) -> None:
    run, state = rows["adamw"].runs[0]
    assert state.summary is not None
    at_once = replace(rows["adamw"], runs=[(run, replace(state, summary=replace(state.summary, epochs=0)))])
    assert [each.above for each in at_once.epoch_runs] == [EPOCHS]


@pytest.mark.parametrize("per_epoch", [3, 6, 7, 8])
def test_evaluations_that_follow_one_another_leave_nothing_between_them(rows: dict[str, Row], per_epoch: int) -> None:
    """Summaries round epochs to three digits: 3.667 after 4 of 3 evaluations an epoch."""
    _, state = rows["sgd"].runs[0]
    assert state.summary is not None
    ends = [
        replace(state, summary=replace(state.summary, epochs=epochs, epochs_to_target=epochs))
        for epochs in (round(3 + number / per_epoch, 3) for number in range(1, per_epoch + 1))
    ]
    row = replace(rows["sgd"], evaluations_per_epoch=per_epoch)
    found = [row.epoch_run(end) for end in ends]
    assert all(a is not None and b is not None and b.above >= a.up_to for a, b in pairwise(found))
    missed = row.epoch_run(replace(ends[1], status="missed"))
    assert missed is not None
    assert missed.above == found[1].up_to  # type: ignore[union-attr]
    compared = compare([([found[0]] * 5, [found[1]] * 5)])  # type: ignore[list-item]
    assert compared is not None
    assert compared.p == pytest.approx(2 / 252)
    between = replace(state, summary=replace(state.summary, epochs=2.55, epochs_to_target=2.55))
    assert row.epoch_run(between).up_to == 2.55, "a run that ends by steps ends between evaluations"  # type: ignore[union-attr]


def test_where_runs_end_by_steps_it_counts_with_the_epochs_of_so_many(rows: dict[str, Row]) -> None:
    """An epoch is 4,096 samples, which are 128 steps at batch 32."""
    by_steps = replace(rows["adamw"], max_steps=320)
    assert [run.above for run in by_steps.epoch_runs] == [2.5] * 5


def ended(row: Row, epochs: float, samples: int, **fields: object) -> tuple[float, float]:
    """The ends of what a run says that met the target after ``epochs``, of a set with so many samples."""
    _, state = row.runs[0]
    assert state.summary is not None
    summary = replace(state.summary, epochs=epochs, epochs_to_target=epochs, train_samples=samples)
    found = replace(row, **fields).epoch_run(replace(state, summary=summary))  # type: ignore[arg-type]
    assert found is not None
    return found.above, found.up_to


def test_a_run_that_ends_between_evaluations_did_not_meet_the_target_at_the_one_before(rows: dict[str, Row]) -> None:
    """The evaluation before step 2.4 epochs was at 2.0, not at 1.4."""
    assert ended(rows["sgd"], 2.4, 4096) == (2.0, 2.4)
    assert ended(rows["sgd"], 2.4, 4096, evaluations_per_epoch=4) == (2.25, 2.4)


def test_evaluations_stand_where_whole_steps_put_them(rows: dict[str, Row]) -> None:
    """An epoch of 5 steps has its third of four evaluations after the fourth step."""
    assert ended(rows["sgd"], 1.75, 160, evaluations_per_epoch=4) == (1.4, 1.8)
    assert ended(rows["sgd"], 1.75, 150, evaluations_per_epoch=4) == (1.4, 1.8), "the fifth step is short"
    assert ended(rows["sgd"], 1.75, 150, evaluations_per_epoch=4, keeps_last_batch=False) == (1.5, 1.75)
    above, up_to = ended(rows["sgd"], 1.125, 64, evaluations_per_epoch=8)
    assert above < up_to, "eight evaluations of two steps"


def test_the_last_step_of_an_epoch_counts_whole_though_it_is_short(rows: dict[str, Row]) -> None:
    """100 samples at batch 64 are two steps an epoch, so that four steps are two epochs."""
    run, state = rows["adamw"].runs[0]
    assert state.summary is not None
    short = replace(state, summary=replace(state.summary, train_samples=100))
    row = replace(rows["adamw"], point=replace(run.point, batch=64), max_steps=4, runs=[(run, short)])
    assert [each.above for each in row.epoch_runs] == [2.0]
