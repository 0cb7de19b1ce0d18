"""Epochs from few runs of one's own: how often their interval holds a new run, and what is said about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hpcbench.batch.machine import Machine
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.prediction import read_runs
from hpcbench.prediction.epochs import own_epochs
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.notes import chosen_notes, target_notes
from hpcbench.prediction.predictions import Predicted
from hpcbench.prediction.read_runs import own_epochs_of
from hpcbench.prediction.request import Request, predict
from hpcbench.prediction.workload import work_of
from staging.errors import InputError


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10])
def test_a_new_run_lies_within_the_interval_as_often_as_it_says(count: int, fitted: Fitted) -> None:
    """Seeds scatter as the published ones do; 80 % within, by 1,500 new runs to about 1 %."""
    random, scatter, inside, trials = np.random.default_rng(11), fitted.epochs.seeds, 0, 1500
    for _ in range(trials):
        *own, new = 40 * np.exp(scatter * random.standard_normal(count + 1))
        drawn = own_epochs(64, {64: own}, fitted.epochs, "study").draw(random, 400)
        low, high = np.quantile(drawn, (0.1, 0.9))
        inside += low <= new <= high
    assert 0.77 <= inside / trials <= 0.88


def test_runs_that_scatter_more_widen_the_interval(fitted: Fitted) -> None:
    close, far = (own_epochs(64, {64: runs}, fitted.epochs, "s") for runs in ([40.0, 41.0, 42.0], [30.0, 40.0, 55.0]))
    assert far.seeds > 1.5 * close.seeds > 0


def test_runs_that_missed_the_target_are_counted(monkeypatch: pytest.MonkeyPatch, fitted: Fitted) -> None:
    def record(epochs: float | None, status: str | None) -> RunRecord:
        return RunRecord(path="x", origin="log", application="cosmoflow", global_batch_size=1024, epochs=epochs,
                         status=status)  # fmt: skip

    runs = [record(44.0, "success"), record(46.0, "success"), record(None, "aborted"), record(None, None)]
    monkeypatch.setattr(read_runs, "records_of", lambda paths, option: runs)
    found, missed, _ = own_epochs_of(Path("runs"), work_of("cosmoflow"))
    assert (found, missed) == ({1024: [44.0, 46.0]}, {1024: 1}), "the last one was cut off"
    words = own_epochs(1024, found, fitted.epochs, "runs", missed[1024]).words
    assert words == "2 runs of your own, in runs; 1 of 3 runs missed the target and is not in this"
    assert "missed" not in own_epochs(1024, found, fitted.epochs, "runs").words


def test_runs_to_several_targets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs to an easy target beside those to the published one would be a mean of neither."""
    work = work_of("cosmoflow")
    runs = [RunRecord(path=path, origin="own", application="cosmoflow", global_batch_size=1024, epochs=epochs)
            for path, epochs in (("easy", 5.0), ("whole", 44.0), ("again", 46.0))]  # fmt: skip
    targets = {"easy": 0.3, "whole": 0.124, "again": 0.124}
    monkeypatch.setattr(read_runs, "records_of", lambda paths, option: list(runs))
    monkeypatch.setattr(read_runs, "check_size", lambda where, summary, work: None)
    monkeypatch.setattr(read_runs, "summary_of", lambda record: SimpleNamespace(target=targets[record.path]))
    with pytest.raises(
        InputError, match=r"has runs to several targets \(0.3 in easy, 0.124 in whole\); give runs to one"
    ):
        own_epochs_of(Path("runs"), work)
    del runs[0]
    assert own_epochs_of(Path("runs"), work) == ({1024: [44.0, 46.0]}, {}, 0.124)


@pytest.mark.parametrize(("target", "said"), [(0.3, ["Target: 0.3, of your own runs; the published one is 0.124."]),
                                              (0.124, []), (None, [])])  # fmt: skip
def test_another_target_than_the_published_one_is_told(
    target: float | None, said: list[str], machines: dict[str, Machine], fitted: Fitted
) -> None:
    own = {1024: [30.0, 31.0]}
    request = Request("cosmoflow", machines["selene"], (8,), recipe="runs", own_runs=own, own_target=target)
    assert target_notes(predicted(request, fitted, machines)) == said


def test_a_batch_that_was_chosen_says_among_how_many(machines: dict[str, Machine], fitted: Fitted) -> None:
    own = {512: [22.0], 1024: [30.0, 31.0]}
    request = Request("cosmoflow", machines["selene"], (8, 16), recipe="runs", own_runs=own)
    (note,) = chosen_notes(predicted(request, fitted, machines))
    assert note.startswith("Batch: the fastest of 2 at 8, 16 nodes, each known from its own few runs; ")
    assert chosen_notes(predicted(replace(request, batch=512), fitted, machines)) == []


def predicted(request: Request, fitted: Fitted, machines: dict[str, Machine]) -> Predicted:
    return Predicted(request, tuple(predict(request, fitted, list(machines.values()))), (), ())
