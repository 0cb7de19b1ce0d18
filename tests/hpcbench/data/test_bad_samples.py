"""A score or a loss that is not finite is traced to the file behind it, through every wrapper of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from apps.cosmoflow.config import Config
from apps.cosmoflow.data import open_split
from apps.cosmoflow.samples import write_sample
from apps.cosmoflow.task import CosmoFlowTask
from hpcbench.data.bad_samples import blame, file_of_sample, first_bad_score
from hpcbench.data.loader import first_samples
from hpcbench.data.shard import Shard

COLUMNS = ("error", "predicted")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A CosmoFlow set of five training samples."""
    config = Config()
    config.data.root, config.data.sample_size, config.data.compression = str(tmp_path), 4, "none"
    (tmp_path / "train").mkdir()
    for number in range(5):
        write(config, number)
    return config


def write(config: Config, number: int, count: int = 1, label: float = 0.5) -> Path:
    """A sample of equal counts."""
    path = Path(config.data.root) / "train" / f"{number}.tfrecord"
    write_sample(path, np.full((4, 4, 4, 4), count, np.int16), np.full(4, label, np.float32), config.data)
    return path


class Rows(Dataset[Any]):
    """Samples of one file, which a dataset can say or not."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.rows[index], self.rows[index]


class NamedRows(Rows):
    """One that can."""

    def file_of(self, index: int) -> str:
        """The row."""
        return f"all.h5, row {index}"


def test_the_file_of_a_sample_of_a_split_and_of_parts_of_it(config: Config) -> None:
    samples = open_split(config, "train")
    name = f"{config.data.root}/train/{{}}.tfrecord".format
    assert [file_of_sample(samples, index) for index in (0, 4)] == [name(0), name(4)]
    assert file_of_sample(first_samples(samples, 3, "data.train_samples"), 2) == name(2)
    assert file_of_sample(Subset(samples, [4, 1]), 1) == name(1)
    on_node = Shard(Subset(samples, [1, 3]), np.array([1, 3]), 5)
    assert file_of_sample(on_node, 3) == name(3)
    assert file_of_sample(on_node, 2) == "sample 2, on another node"


def test_the_file_of_a_sample_of_other_datasets() -> None:
    assert file_of_sample(NamedRows(torch.zeros(3, 1)), 2) == "all.h5, row 2"
    assert file_of_sample(Subset(NamedRows(torch.zeros(3, 1)), [2]), 0) == "all.h5, row 2"
    assert file_of_sample(Rows(torch.zeros(3, 1)), 2) == "sample 2"


def test_the_first_bad_score_names_its_column_value_and_file(config: Config) -> None:
    samples = open_split(config, "train")
    scores = torch.zeros(5, 2, dtype=torch.float64)
    assert first_bad_score(scores, samples, COLUMNS) is None
    scores[3, 1] = torch.inf
    line = f"predicted of {config.data.root}/train/3.tfrecord is inf, though the stored values are in range; "
    advice = "lower --optim.lr, or take a wider --train.precision"
    assert first_bad_score(scores, samples, COLUMNS) == line + advice
    scores[1] = torch.nan
    found = first_bad_score(scores, samples, COLUMNS)
    assert found is not None
    assert found.startswith(f"error of {config.data.root}/train/1.tfrecord is nan, and those of 1 other samples are")


def test_where_no_score_is_finite_it_is_the_model(config: Config) -> None:
    scores = torch.full((5, 2), torch.nan, dtype=torch.float64)
    found = first_bad_score(scores, open_split(config, "train"), COLUMNS)
    assert found is not None
    assert "0.tfrecord is nan" in found
    assert "the model has diverged; lower --optim.lr" in found
    assert first_bad_score(scores[:0], [], COLUMNS) is None


def test_sound_samples_are_not_blamed(config: Config) -> None:
    samples = open_split(config, "train")
    assert blame(samples, range(5), CosmoFlowTask(config)) is None
    assert blame(Rows(torch.randn(4, 3)), torch.arange(4)) is None
    assert blame(Rows(torch.zeros(4, 3, dtype=torch.int16)), [0]) is None


@pytest.mark.parametrize(
    ("count", "label", "problem"),
    [
        (-1, 0.5, "holds a count of -1"),
        (1, float("nan"), "label [nan,"),
        (1, 3.0, "label [3.0,"),
        (0, 0.5, "no particle"),
    ],
)
def test_a_bad_training_sample_is_blamed_and_not_the_learning_rate(
    config: Config, count: int, label: float, problem: str
) -> None:
    path = write(config, 3, count, label)
    samples = open_split(config, "train")
    shard = Shard(Subset(samples, [3, 4]), np.array([3, 4]), 5)
    for dataset in (samples, Subset(samples, range(5)), shard):
        found = blame(dataset, [0, 1, 4, 3], CosmoFlowTask(config))
        assert found is not None
        assert found.startswith(f"{path}: ")
        assert problem in found
        assert "\n" not in found
    assert blame(shard, [0, 1, 2]) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
def test_values_of_any_dataset_that_give_no_finite_loss(value: float) -> None:
    rows = torch.zeros(4, 2, 3)
    rows[2, 1, 2] = value
    found = blame(NamedRows(rows), [3, 2])
    assert found is not None
    assert found.startswith("all.h5, row 2: input ")
    assert "at (1, 2); check the file" in found


def test_what_a_task_makes_of_a_sample_is_looked_at_too() -> None:
    class Logarithm:
        """Of inputs that reading lets pass."""

        def prepare(self, inputs: Tensor, targets: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
            """ln(x)."""
            return inputs.log(), targets

    rows = torch.ones(3, 2)
    rows[1, 0] = -2
    assert blame(Rows(rows), range(3)) is None
    found = blame(Rows(rows), range(3), Logarithm())
    assert found == "sample 1: prepared input nan at (0,); check the file with `hpcbench data verify`"
