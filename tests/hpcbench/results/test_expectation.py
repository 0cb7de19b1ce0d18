"""The verdict beside recorded runs: its interval by an independent library and by simulation, its words, its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hpcbench.results.expectation import evaluations, expectation, interval
from hpcbench.results.records import Run, read_run
from hpcbench.results.references import ReferencePoint
from hpcbench.results.report import write_report

POINT = ReferencePoint("laptop", "laptop", "cosmoflow", 8, [8, 9, 9, 10, 14], {}, target=0.37)
USUAL = "between 2 and 18, as 95 % of new runs of this preset should"


@pytest.fixture
def run(build_run: Any) -> Run:
    return read_run(build_run(global_batch_size=8, target=0.37, status="success", epochs=9, epochs_to_target=9))


def test_the_interval_is_that_of_a_prediction() -> None:
    epochs = [7.0, 8.5, 9.25, 12.0]
    low, high = stats.t.interval(0.95, 3, np.mean(epochs), np.std(epochs, ddof=1) * np.sqrt(1.25))
    assert interval(epochs, 1000) == pytest.approx((low, high), abs=1e-3)
    assert interval(epochs) == (np.floor(low), np.ceil(high))
    assert interval([1, 1, 4])[0] == 1, "not before the first evaluation"
    assert interval([5, 5, 5]) == (5, 5)


def test_as_many_new_runs_as_it_says_lie_within() -> None:
    random = np.random.default_rng(3)
    inside = 0
    for _ in range(2000):
        *recorded, new = random.normal(60, 8, 6)
        low, high = interval(recorded, 8)
        inside += low <= new <= high
    assert inside / 2000 == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (9, f"Yes: it reached the target after 9 epochs, {USUAL}."),
        (18, f"Yes: it reached the target after 18 epochs, {USUAL}."),
        (19, f"No: it reached the target after 19 epochs, not {USUAL}."),
        (1, f"No: it reached the target after 1 epoch, not {USUAL}."),
    ],
)
def test_epochs_within_and_outside(run: Run, epochs: float, words: str) -> None:
    assert expectation(replace(run, summary=replace(run.summary, epochs_to_target=epochs)), [POINT]) == words


def test_a_run_that_missed_its_target(run: Run) -> None:
    missed = replace(run.summary, status="target_not_reached", epochs_to_target=None)
    ended = replace(run, summary=replace(missed, epochs=10))
    assert expectation(ended, [POINT]) == "No verdict: it ended after 10 epochs, and may need up to 18."
    late = replace(run, summary=replace(missed, epochs=20))
    assert expectation(late, [POINT]) == f"No: it missed the target in 20 epochs, and should have reached it {USUAL}."


def test_evaluations_within_epochs_narrow_the_interval(run: Run) -> None:
    finer = run.epochs.assign(epoch=run.epochs["epoch"] / 4)
    found = expectation(replace(run, epochs=finer), [replace(POINT, epochs=[1.5, 1.75, 2.0])])
    assert (
        found
        == "No: it reached the target after 9 epochs, not between 0.5 and 3, as 95 % of new runs of this preset should."
    )


@pytest.mark.parametrize(
    ("numbers", "count"),
    [([0.25, 0.5, 0.75], 4), ([0.333], 3), ([0.5, 1, 1.5, 2], 2), ([1, 1.25], 1), ([1, 2, 3], 1), ([], 1)],
)
def test_evaluations_per_epoch_of_a_run_that_stops_within_one(run: Run, numbers: list[float], count: int) -> None:
    rows = pd.DataFrame({"epoch": numbers})
    assert evaluations(replace(run, epochs=rows)) == count
    run.folder.write_config({"train": {"evaluations_per_epoch": 8}})
    assert evaluations(replace(run, epochs=rows)) == 8
    run.folder.config.write_text("train: [", encoding="utf-8")
    assert evaluations(replace(run, epochs=rows)) == count
    run.folder.config.unlink()
    assert evaluations(replace(run, epochs=rows)) == count


def test_a_run_that_met_its_target_at_its_first_evaluation_did_so_as_others_do(run: Run) -> None:
    run.folder.write_config({"train": {"evaluations_per_epoch": 4}})
    met = replace(run, summary=replace(run.summary, epochs_to_target=0.25), epochs=run.epochs[:1].assign(epoch=0.25))
    found = expectation(met, [replace(POINT, epochs=[0.25, 0.25, 0.25])])
    assert found.startswith("Yes: it reached the target after 0.25 epochs, between 0.25 and 0.25, as 95 % of new runs")


def test_what_cannot_be_told(run: Run) -> None:
    other = "No verdict: these were recorded at another global batch or target."
    assert expectation(run, [replace(POINT, batch_size=4)]) == other
    assert expectation(run, [replace(POINT, target=0.3)]) == other
    assert expectation(run, [replace(POINT, epochs=[8, 9])]) == "No verdict: 2 runs cannot tell how much seeds differ."
    assert expectation(run, [replace(POINT, target=0.3), POINT]).startswith("Yes: ")


def test_a_page_of_a_preset_without_recorded_runs_says_what_to_compare_with(build_run: Any, tmp_path: Path) -> None:
    page = write_report([build_run(preset="mlperf")], tmp_path / "page.html")[0].read_text(encoding="utf-8")
    section = page.split('<section id="references">')[1].split("</section>")[0]
    assert "<h2>Is that what to expect?</h2>" in section
    assert "No verdict: no runs of this preset are recorded with the application. Compare this run with" in section
    for command in ("report RUN RUN ...", "characterize", "predict"):
        assert f"hpcbench {command}" in section
    assert section.count("<p") == 1
    assert "<table" not in section


def test_the_page_has_the_verdict(build_run: Any, tmp_path: Path) -> None:
    page = write_report([build_run(global_batch_size=4, target=0.1, preset="smoke")], tmp_path / "page.html")[0]
    assert "No verdict: these were recorded at another global batch or target." in page.read_text(encoding="utf-8")
