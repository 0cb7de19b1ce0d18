"""Evaluations within an epoch: training stays what it is, and everything that counts epochs may have a fraction."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import asdict
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from hpcbench.cli.main import main
from hpcbench.mlperf.compliance import check_log
from hpcbench.results import units
from hpcbench.results.plots import quality, throughput
from hpcbench.results.records import read_run
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.results.tables import runs_table
from hpcbench.study.definition import Study
from hpcbench.study.plan import all_runs
from hpcbench.study.rates import Rate
from hpcbench.study.results import results_frame
from hpcbench.study.run_status import RunStatus
from hpcbench.train.checkpoint_io import load_newest
from hpcbench.train.loop import Trainer
from tests.hpcbench.measure.driven_logs import drive
from tests.hpcbench.train.conftest import train_in_ranks
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
NEVER = ("--train.target", "1e-9")
"""A target that no run meets."""
STOCHASTIC = ("--model.dropout", "0.5", "--data.augment", "true")
FIFTHS = ("--train.local_batch_size", "2", "--train.evaluations_per_epoch", "5")
"""Twelve steps an epoch in parts of 2, 3, 2, 3 and 2."""
TIMES = ["train_s", "eval_s", "elapsed_s", "samples_per_s"]


def epochs(folder: Path) -> pd.DataFrame:
    return RunFolder.open(folder).read_epochs()


def steps(folder: Path) -> str:
    return RunFolder.open(folder).steps.read_text()


def log_of(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "mllog.txt").read_text().splitlines()
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def numbers(folder: Path, key: str) -> list[float]:
    return [line["metadata"]["epoch_num"] for line in log_of(folder) if line["key"] == key]


def error(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hpcbench: ")]
    return line


def same_model(one: Path, other: Path) -> None:
    found, wanted = (load_newest(folder / "checkpoints") for folder in (one, other))
    assert found is not None
    assert wanted is not None
    assert all(torch.equal(found.model[name], value) for name, value in wanted.model.items())


def test_training_is_that_of_a_single_evaluation_bit_for_bit(train: Train, tmp_path: Path) -> None:
    common = (*NEVER, *STOCHASTIC, "--train.max_epochs", "2", "--train.local_batch_size", "2", "--data.workers", "1")
    assert train(tmp_path / "one", *common) == 3
    assert train(tmp_path / "five", *common, *FIFTHS) == 3
    assert steps(tmp_path / "five") == steps(tmp_path / "one")
    same_model(tmp_path / "five", tmp_path / "one")
    assert not (set(numbers(tmp_path / "one", "eval_start")) - {1, 2})
    whole, parts = epochs(tmp_path / "one"), epochs(tmp_path / "five")
    assert parts["epoch"].tolist() == [0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.6, 1.8, 2]
    assert parts["step"].tolist() == [2, 5, 7, 10, 12, 14, 17, 19, 22, 24]
    ends = parts[parts["epoch"] % 1 == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        ends.drop(columns=[*TIMES, "train_loss"]), whole.drop(columns=[*TIMES, "train_loss"]), check_dtype=False
    )


def test_a_row_has_the_mean_loss_since_the_evaluation_before(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", *NEVER, *FIFTHS, "--train.max_epochs", "1") == 3
    losses, rows = RunFolder.open(tmp_path / "run").read_steps()["loss"], epochs(tmp_path / "run")
    bounds = [0, *rows["step"]]
    means = [losses[start:end].mean() for start, end in pairwise(bounds)]
    assert rows["train_loss"].tolist() == pytest.approx(means, rel=1e-12)
    text = RunFolder.open(tmp_path / "run").epochs.read_text().splitlines()
    assert [line.split(",")[0] for line in text[1:]] == ["0.2", "0.4", "0.6", "0.8", "1"]


def test_epochs_of_a_run_with_one_evaluation_stay_integers(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--train.target", "10") == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (repr(found["epochs"]), repr(found["epochs_to_target"])) == ("1", "1")
    assert [repr(number) for number in numbers(tmp_path / "run", "eval_error")] == ["1"]


@pytest.fixture(scope="module")
def storms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset for a network with batch norm."""
    root = tmp_path_factory.mktemp("data") / "deepcam"
    sizes = ("--simulate.train_samples", "10", "--simulate.validation_samples", "3")
    words = ["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(root), "--processes", "1", *sizes]
    assert main(words) == 0
    return root


def deepcam(root: Path, folder: Path, *settings: str) -> list[str]:
    return [
        "train", "deepcam", "--preset", "smoke", "--data.root", str(root), "--run-dir", str(folder), "--seed", "5",
        "--train.baselines", "false", "--parallel.threads", "1", "--model.width_factor", "0.125", "--train.target",
        "null", "--train.precision", "64-true", "--train.local_batch_size", "1", "--train.max_epochs", "2", *settings,
    ]  # fmt: skip


@pytest.mark.slow
def test_statistics_of_batch_norm_are_averaged_as_at_the_end_of_an_epoch(storms: Path, tmp_path: Path) -> None:
    """The mean over ranks of running means is the same whenever it is taken, so the evaluations agree, too."""
    names = {"one": (), "half": ("--train.evaluations_per_epoch", "2")}
    for name, more in names.items():
        assert main(deepcam(storms, tmp_path / name, "--parallel.simulated_ranks", "2", *more)) == 0
    train_in_ranks(2, [deepcam(storms, tmp_path / "ranks", *names["half"])])
    assert steps(tmp_path / "half") == steps(tmp_path / "one")
    at_ends = epochs(tmp_path / "half").iloc[1::2].reset_index(drop=True)
    left_out = [*TIMES, "train_loss"]
    pd.testing.assert_frame_equal(
        at_ends.drop(columns=left_out), epochs(tmp_path / "one").drop(columns=left_out), check_dtype=False, rtol=1e-9
    )
    pd.testing.assert_frame_equal(
        epochs(tmp_path / "ranks").drop(columns=TIMES), epochs(tmp_path / "half").drop(columns=TIMES), rtol=1e-9
    )


def test_a_target_may_be_met_within_an_epoch(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert train(folder, "--train.target", "10", *FIFTHS) == 0
    assert "after 0.2 epochs" in capsys.readouterr().out
    summary = RunFolder.open(folder).read_summary()
    assert (summary.epochs_to_target, summary.epochs, summary.steps, summary.samples) == (0.2, 0.2, 2, 4)
    assert numbers(folder, "eval_error") == [0.2]
    assert numbers(folder, "epoch_start") == numbers(folder, "epoch_stop") == [1]
    result = check_log(folder / "mllog.txt", "open")
    assert (result.official, result.messages) == ("own target", [])
    page = (folder / "report.html").read_text()
    assert "0.2 epochs" in page
    assert "within epochs, too" in page
    assert main(["report", str(folder), "--out", str(tmp_path / "again.html")]) == 0
    assert train(folder, "--resume") == 2
    assert "has reached its target" in error(capsys)


def test_such_an_end_passes_the_closed_rules(train: Train, tmp_path: Path) -> None:
    """The epoch of a small run, at the published quality, in the log of a closed one."""
    closed = drive(tmp_path / "closed.txt", "cosmoflow", scores=(0.4,))
    assert train(tmp_path / "run", "--train.target", "10", *FIFTHS) == 0
    head, _, _ = closed.read_text().partition(first_line(closed, "epoch_start"))
    run = tmp_path / "run" / "mllog.txt"
    _, start, epoch = run.read_text().partition(first_line(run, "epoch_start"))
    measured = first_line(run, "eval_error")
    reached = ":::MLLOG " + json.dumps(json.loads(measured.removeprefix(":::MLLOG ")) | {"value": 0.12}) + "\n"
    closed.write_text(head + start + epoch.replace(measured, reached))
    result = check_log(closed)
    assert (result.division, result.official, result.messages) == ("closed", "pass", [])


def first_line(path: Path, key: str) -> str:
    return next(line for line in path.read_text().splitlines(keepends=True) if f'"key": "{key}"' in line)


INTERRUPTED_AFTER = {"within a part": 4, "before an evaluation": 17, "before the end of an epoch": 12}
"""Steps after which a signal ends the run."""


@pytest.mark.slow
@pytest.mark.parametrize("moment", slow_except(["within a part"], INTERRUPTED_AFTER))
def test_a_resumed_run_has_the_rows_of_one_that_was_not_interrupted(
    moment: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = (*NEVER, *STOCHASTIC, *FIFTHS, "--train.max_epochs", "2")
    assert train(tmp_path / "whole", *common) == 3
    step = Trainer.finish_step

    def interrupted(trainer: Trainer, samples: int) -> None:
        step(trainer, samples)
        if trainer.state.step == INTERRUPTED_AFTER[moment]:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "finish_step", interrupted)
        assert train(tmp_path / "parts", *common) == 128 + signal.SIGTERM
    assert train(tmp_path / "parts", "--resume") == 3
    assert steps(tmp_path / "parts") == steps(tmp_path / "whole")
    pd.testing.assert_frame_equal(
        epochs(tmp_path / "parts").drop(columns=TIMES), epochs(tmp_path / "whole").drop(columns=TIMES)
    )
    same_model(tmp_path / "parts", tmp_path / "whole")
    for key in ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_error"):
        assert numbers(tmp_path / "parts", key) == numbers(tmp_path / "whole", key)


def test_a_run_is_not_resumed_with_another_target_that_it_has_met(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Trainer.finish_step

    def interrupted(trainer: Trainer, samples: int) -> None:
        step(trainer, samples)
        if trainer.state.step == 4:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "finish_step", interrupted)
        assert train(tmp_path / "run", *NEVER, *FIFTHS) == 128 + signal.SIGTERM
    log = (tmp_path / "run" / "mllog.txt").read_bytes()
    assert train(tmp_path / "run", "--resume", "--train.target", "10") == 2, "its clock went on after that evaluation"
    assert "met train.target 10 after 0.2 epochs already, when it had another target" in capsys.readouterr().err
    assert (tmp_path / "run" / "mllog.txt").read_bytes() == log


REFUSED = {
    "none": (("--train.evaluations_per_epoch", "0"), "train.evaluations_per_epoch (0) must be at least 1"),
    "more than digits": (("--train.evaluations_per_epoch", "1001"), "must be at most 1000"),
    "more than steps": (("--train.evaluations_per_epoch", "4"), "(4) is more than the 3 optimizer steps of an epoch"),
    "accumulated": (
        ("--train.evaluations_per_epoch", "2", "--train.accumulation", "3"),
        "(2) is more than the 1 optimizer step of an epoch",
    ),
    "overlap": (
        ("--train.evaluations_per_epoch", "2", "--staging.destination", "/tmp/x", "--staging.overlap", "true"),
        "staging.overlap still stages; set it to 1, or staging.overlap false",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_written(
    case: str, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, words = REFUSED[case]
    assert train(tmp_path / "run", *settings) == 2
    assert words in error(capsys)
    assert not (tmp_path / "run").exists()


def test_shards_with_too_few_steps_are_refused(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes with twelve samples each: two steps of eight on each."""
    shards = ("--staging.placement", "shard", "--parallel.simulated_nodes", "2", "--parallel.simulated_ranks", "2")
    assert train(tmp_path / "run", *shards, "--train.evaluations_per_epoch", "3", "--train.max_epochs", "1") == 2
    assert "(3) is more than the 2 optimizer steps of an epoch" in error(capsys)
    assert train(tmp_path / "fits", *shards, "--train.evaluations_per_epoch", "2", "--train.max_epochs", "1") == 0
    assert epochs(tmp_path / "fits")["epoch"].tolist() == [0.5, 1]


@pytest.mark.slow
def test_a_study_counts_parts_of_epochs(cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "study", "convergence", "cosmoflow", "--preset", "smoke", "--data.root", str(cosmos), "--batch-sizes", "4,8",
        "--optimizers", "sgd", "--seeds", "1", "--study-dir", str(tmp_path / "study"), "--parallel.threads", "1",
    ]  # fmt: skip
    assert main([*words, "--train.target", "10", "--train.evaluations_per_epoch", "4"]) == 2
    assert "more than the 3 optimizer steps of an epoch at batch 8" in error(capsys)
    assert main([*words, "--train.target", "10", "--train.evaluations_per_epoch", "2"]) == 0
    out = capsys.readouterr().out
    assert "after 0.5 epochs" in out
    found = pd.read_csv(tmp_path / "study" / "results.csv", dtype=str)
    assert found["epochs_to_target"].tolist() == found["epochs"].tolist() == ["0.5", "0.5"]
    assert found["steps_to_target"].tolist() == ["3", "2"]
    assert "0.500" in (tmp_path / "study" / "table.txt").read_text()


def test_whole_and_partial_epochs_stand_beside_each_other_as_they_are() -> None:
    study = Study(
        application="cosmoflow", preset="smoke", batch_sizes=(8, 16), optimizers=("sgd",), seeds=2, local_batch_size=8,
        rates={"sgd": Rate(0.01, 8)}, lr_search=(1.0,),
    )  # fmt: skip
    first, second, third = all_runs(study, {})[:3]
    found = {
        run.name: RunStatus(
            "reached", "", Summary("", "", "", "success", target=1.0, epochs=value, epochs_to_target=value)
        )
        for run, value in ((first, 3), (second, 2.25))
    }
    table = pd.read_csv(StringIO(results_frame(study, found).to_csv(index=False)), dtype=str).set_index("run")
    assert table.loc[[first.name, second.name], "epochs_to_target"].tolist() == ["3", "2.25"]
    assert pd.isna(table.loc[third.name, "epochs"])
    assert [units.epochs(value) for value in (3, 2.25, 0.333, 1234, None)] == ["3", "2.25", "0.333", "1,234", "-"]
    frame = pd.DataFrame([asdict(state.summary) | {"quality": 0.1} for state in found.values() if state.summary])
    cells = [line.split() for line in runs_table(frame).splitlines()[2:]]
    assert ["3" in cells[0], "2.25" in cells[1]] == [True, True]


@pytest.mark.slow
def test_pages_and_plots_of_parts(train: Train, tmp_path: Path) -> None:
    for name, more in {"whole": (), "parts": FIFTHS}.items():
        assert train(tmp_path / name, *NEVER, "--train.max_epochs", "2", *more) == 3
    whole, parts = (read_run(tmp_path / name) for name in ("whole", "parts"))
    bars = {run.folder.path.name: throughput(run).figure.axes[0].patches for run in (whole, parts)}
    assert bars["whole"][0].get_width() == pytest.approx(0.72)
    assert bars["parts"][0].get_width() == pytest.approx(0.72 * 0.2)
    assert "after every epoch, against" in quality(whole).caption
    assert "after parts of every epoch, against" in quality(parts).caption
    assert main(["report", str(tmp_path / "whole"), str(tmp_path / "parts"), "--out", str(tmp_path / "both.html")]) == 0
