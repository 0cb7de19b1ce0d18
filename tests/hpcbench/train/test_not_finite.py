"""Runs with a loss, an output, a score or a metric that is not finite: why they end, and for which file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from apps.cosmoflow.config import CosmoFlowData
from apps.cosmoflow.data import CosmoFlowDataset
from apps.cosmoflow.samples import read_sample, write_sample
from apps.cosmoflow.task import CosmoFlowTask
from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.evaluate import values_not_finite
from hpcbench.train.training_step import TrainingStep
from staging.errors import DataError

Train = Callable[..., int]


@pytest.fixture
def copy(cosmos: Path, tmp_path: Path) -> Path:
    """A copy of the set to damage."""
    return Path(shutil.copytree(cosmos, tmp_path / "copy"))


def plant(copy: Path, split: str, number: int, *, count: int | None = None, label: float | None = None) -> Path:
    """Write a count or a label into a sample; returns its file."""
    data = CosmoFlowData(sample_size=16)
    path = sorted((copy / split).glob("*.tfrecord"))[number]
    counts, truth = read_sample(path, data)
    counts, truth = counts.copy(), truth.copy()
    if count is not None:
        counts[1, 2, 3, 0] = count
    if label is not None:
        truth[2] = label
    write_sample(path, counts, truth, data)
    return path


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading checks no values, as that of an application that leaves it to ``check``."""

    def check(self: CosmoFlowDataset, index: int) -> None:
        counts, label = read_sample(self.files[index], self.data)
        if counts.min() < 0 or not np.isfinite(label).all():
            raise DataError(self.files[index], "holds values that are no counts, or no label")

    monkeypatch.setattr("apps.cosmoflow.samples.checked_label", lambda path, label: label)
    monkeypatch.setattr(CosmoFlowDataset, "check", check)


def ended(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str | None, str]:
    """Status and cause of a run, and the reason, which is also the only line that it printed of an error."""
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hpcbench: ")]
    summary = RunFolder.open(folder).read_summary()
    assert len(said) == 1
    assert said[0].removeprefix("hpcbench: aborted: ").removeprefix("hpcbench: error: ") == summary.reason
    assert '"status": "aborted"' in (folder / "mllog.txt").read_text()
    return summary.status, summary.cause, summary.reason


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_nan_that_is_noticed_where_it_is_read(
    split: str, copy: Path, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr("apps.cosmoflow.samples.checked_label", lambda path, label: label)
        path = plant(copy, split, 3, label=np.nan)
    assert train(tmp_path / "run", "--data.root", str(copy), "--data.workers", "0", "--train.max_epochs", "1") == 2
    status, cause, reason = ended(tmp_path / "run", capsys)
    assert (status, cause) == ("aborted", "bad_data")
    assert reason.startswith(f"{path}: label [")


def test_a_negative_count_does_not_train_where_its_logarithm_is_not_taken(
    copy: Path, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plant(copy, "train", 3, count=-30000)
    words = ("--data.root", str(copy), "--data.apply_log", "false", "--train.max_epochs", "1")
    assert train(tmp_path / "run", *words) == 2
    status, cause, reason = ended(tmp_path / "run", capsys)
    assert (status, cause) == ("aborted", "bad_data")
    assert reason.startswith(f"{path}: holds a count of -30000; ")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("split", "number"), [("train", 5), ("validation", 9)])
def test_a_nan_that_is_noticed_by_the_loss_or_the_scores_alone(
    split: str, number: int, copy: Path, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plant(copy, split, number, label=np.nan)
    assert train(tmp_path / "run", "--data.root", str(copy), "--data.workers", "0", "--train.max_epochs", "1") == 2
    status, cause, reason = ended(tmp_path / "run", capsys)
    assert (status, cause) == ("aborted", "bad_data")
    assert reason == f"{path}: holds values that are no counts, or no label"


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of the model is NaN from the first evaluation on."""
    before = TrainingStep.average_statistics

    def average(self: TrainingStep) -> None:
        before(self)
        with torch.no_grad():
            next(iter(self.model.parameters())).fill_(torch.nan)

    monkeypatch.setattr(TrainingStep, "average_statistics", average)


def test_a_nan_in_the_weights_at_an_evaluation(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    poison(monkeypatch)
    assert train(tmp_path / "run", "--train.max_epochs", "1") == 1
    status, cause, reason = ended(tmp_path / "run", capsys)
    assert (status, cause) == ("aborted", "diverged")
    assert "the model has diverged; lower --optim.lr" in reason


def test_a_nan_in_the_weights_in_training(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = TrainingStep.update

    def update(self: TrainingStep, info: object) -> None:
        before(self, info)  # type: ignore[arg-type]
        with torch.no_grad():
            next(iter(self.model.parameters())).fill_(torch.nan)

    monkeypatch.setattr(TrainingStep, "update", update)
    assert train(tmp_path / "run", "--train.max_epochs", "1") == 1
    status, cause, reason = ended(tmp_path / "run", capsys)
    assert (status, cause) == ("aborted", "diverged")
    assert reason.startswith("the loss is nan at step 2; ")
    assert RunFolder(tmp_path / "run").read_steps()["step"].tolist() == [1]


def test_outputs_that_are_not_finite_where_classes_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The largest of NaN logits is that of class 0, which is a lawful score."""
    root = tmp_path / "set"
    sizes = ("--simulate.train_samples", "2", "--simulate.validation_samples", "2")
    assert (
        main(["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(root), "--processes", "1", *sizes]) == 0
    )
    poison(monkeypatch)
    capsys.readouterr()
    words = [
        "train", "deepcam", "--preset", "smoke", "--data.root", str(root), "--run-dir", str(tmp_path / "run"),
        "--train.baselines", "false", "--parallel.threads", "1", "--model.width_factor", "0.125", "--train.target",
        "null", "--train.local_batch_size", "1", "--train.max_epochs", "1",
    ]  # fmt: skip
    assert main(words) == 1
    status, cause, reason = ended(tmp_path / "run", capsys)
    assert (status, cause) == ("aborted", "diverged")
    assert reason.startswith("output of ")
    assert reason.endswith("is nan, and no sample has finite scores: the model has diverged; lower --optim.lr")


@pytest.mark.parametrize(("rows", "others"), [([3], ""), ([3, 4, 7], ", and those of 2 other samples are not finite")])
def test_samples_of_lawful_values_whose_output_is_not_finite_are_no_bad_data(
    rows: list[int], others: str, cosmos: Path, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As where numbers of half the precision overflow: nothing but the output of the model speaks of them."""
    before = TrainingStep.forward

    def forward(self: TrainingStep, inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        output = before(self, inputs, target)
        return output if self.model.training else output.index_fill(0, torch.tensor(rows), torch.inf)

    monkeypatch.setattr(TrainingStep, "forward", forward)
    monkeypatch.setattr(CosmoFlowTask, "score", lambda self, output, target: target.double().repeat(1, 3))
    assert train(tmp_path / "run", "--train.max_epochs", "1", "--train.eval_batch_size", "10") == 1
    status, cause, reason = ended(tmp_path / "run", capsys)
    assert (status, cause) == ("aborted", "diverged")
    path = sorted((cosmos / "validation").glob("*.tfrecord"))[3]
    advice = "lower --optim.lr, or take a wider --train.precision"
    assert reason == f"output of {path} is inf{others}, though the stored values are in range; {advice}"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_that_is_not_finite_though_all_scores_are(
    value: float, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CosmoFlowTask, "metrics", lambda self, scores: {"mae": value, "mae_sigma8": 0.5})
    assert train(tmp_path / "run", "--train.max_epochs", "1") == 1
    advice = "check how the task computes it, or lower --optim.lr"
    reason = f"mae of the validation set is {value}, though all scores are finite; {advice}"
    assert ended(tmp_path / "run", capsys) == ("aborted", "diverged", reason)


def test_samples_whose_output_is_not_finite_are_marked() -> None:
    largest = torch.finfo(torch.float32).max
    output = torch.zeros(5, 3, 5, 5).to(memory_format=torch.channels_last)
    output[0, 1, 2, 3], output[1, 0, 0, 0], output[2, 0, 0, 1], output[3, 2, 4, 4] = torch.nan, -torch.inf, torch.inf, 1
    output[4, 0], output[4, 1] = largest, -largest
    marks = values_not_finite(output)
    assert (marks.dtype, marks.shape) == (torch.float64, (5, 1))
    assert torch.equal(
        marks.flatten().nan_to_num(7.0, posinf=8.0, neginf=9.0), torch.tensor([7.0, 9, 8, 0, 0]).double()
    )
    assert values_not_finite(torch.full((2, 3), torch.finfo(torch.float64).max, dtype=torch.float64)).tolist() == [
        [0],
        [0],
    ]
    assert values_not_finite(torch.tensor([0.0, -torch.inf, 1.0])).tolist() == [[0], [-torch.inf], [0]]
    assert values_not_finite(output[:0]).shape == (0, 1)
