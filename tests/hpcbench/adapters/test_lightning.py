"""LightningModules and LightningDataModules: what is taken of them, and what is refused in one line."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import hpcbench
from hpcbench.adapters.lightning_data import check_order, data_module_split, files_nowhere
from hpcbench.adapters.lightning_module import LightningNetwork, LightningTask, optimizers_of
from hpcbench.config.schema import RunConfig
from staging.errors import InputError


def test_adapters_and_what_writes_packages_import_no_lightning() -> None:
    imported: set[str] = set()
    package = Path(hpcbench.__file__).parent
    for path in (*(package / "adapters").glob("*.py"), *(package / "skeleton").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported |= {name.split(".")[0] for name in names}
    assert not imported & {"lightning", "pytorch_lightning", "datasets"}
    assert "torch" in imported


@pytest.fixture(scope="module")
def lightning() -> Any:
    """The library; skips where it is missing."""
    return pytest.importorskip("lightning", reason="needs the package lightning (extra lightning)")


@pytest.fixture(scope="module")
def line(lightning: Any) -> Any:
    """The class of a module that fits a line, and logs two means."""

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.dense = nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return self.dense(x)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            loss = functional.mse_loss(self(x), y)
            self.log("train_loss", loss, prog_bar=True)
            return {"loss": loss}

        def validation_step(self, batch: Any) -> None:
            x, y = batch
            self.log_dict({"mse": functional.mse_loss(self(x), y), "mae": (self(x) - y).abs().mean()})
            self.log("rmse", functional.mse_loss(self(x), y).sqrt(), sync_dist=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    return Line


X, Y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [2.0], [9.0]])


@pytest.mark.slow
def test_the_loss_is_that_of_training_step_and_rows_are_what_was_logged(line: Any) -> None:
    network, task = LightningNetwork(line(), ("mae", "mse")), LightningTask(("mae", "mse"), "lower", RunConfig())
    loss = task.loss(task.forward(network, X, Y), Y)
    output = network(X)
    assert loss.item() == functional.mse_loss(output, Y).item()
    loss.backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    network.eval()
    scores = torch.cat([task.score(task.forward(network, X[at], Y[at]), Y[at]) for at in (slice(2), slice(2, 3))])
    expected = {"mae": (output - Y).abs().mean().item(), "mse": functional.mse_loss(output, Y).item()}
    assert task.metrics(scores) == pytest.approx(expected, rel=1e-6)
    assert task.forward(network, X[:0], Y[:0]).shape == (0, 2)
    assert len(optimizers_of(network.module)) == 1


@pytest.mark.slow
def test_device_and_dtype_of_the_module_follow(line: Any) -> None:
    network = LightningNetwork(line(), ("mae",)).double()
    assert network.module.dtype == torch.float64
    assert network.to("meta").module.device == torch.device("meta")


@pytest.mark.slow
def test_a_metric_that_is_no_mean_or_is_not_logged_is_refused(line: Any) -> None:
    network, task = LightningNetwork(line(), ("rmse",)).eval(), LightningTask(("rmse",), "lower", RunConfig())
    with pytest.raises(InputError, match=r"'rmse' of Line is .* for 3 samples, and .* as the mean of each alone"):
        task.check_batch(network, X, Y)
    with pytest.raises(InputError, match=r"logs no 'val_loss' \(it logs mse, mae, rmse\); take one of these"):
        LightningNetwork(line(), ("val_loss",)).eval()(X, Y)


@pytest.mark.slow
def test_modules_that_would_train_otherwise_are_refused(line: Any, lightning: Any) -> None:
    def changed(**members: Any) -> Any:
        return type("Changed", (line,), members)()

    def two(self: Any) -> Any:
        return [torch.optim.SGD(self.parameters(), lr=0.1), torch.optim.SGD(self.parameters(), lr=0.1)]

    def late(self: Any, batch: Any) -> Any:
        return self(batch[0]).sum() * self.current_epoch

    def needs_length(self: Any) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1 / self.trainer.estimated_stepping_batches)

    def hook(self: Any, *_: Any) -> None:
        raise AssertionError

    for members, words in (
        ({"automatic_optimization": False}, "Changed optimizes manually"),
        ({"configure_optimizers": two}, "configure_optimizers of Changed makes 2 optimizers; the suite runs one"),
        ({"on_after_batch_transfer": hook}, "Changed defines on_after_batch_transfer, which a run of the suite does"),
    ):
        with pytest.raises(InputError, match=words):
            LightningNetwork(changed(**members), ("mae",))
    with pytest.raises(InputError, match="Bare has no training_step"):
        LightningNetwork(type("Bare", (lightning.LightningModule,), {})(), ("mae",))
    with pytest.raises(InputError, match="asks its Trainer for `current_epoch`"):
        LightningNetwork(changed(training_step=late), ("mae",))(X, Y)
    with pytest.raises(InputError, match="training_step of Changed returned NoneType; return the loss"):
        LightningNetwork(changed(training_step=lambda self, batch: None), ("mae",))(X, Y)
    assert LightningNetwork(changed(configure_optimizers=needs_length), ("mae",))(X).shape == (3, 1)


class Streamed(IterableDataset[Any]):
    """Samples without numbers."""

    def __iter__(self) -> Any:
        return iter([(0.0, 0.0)])


@pytest.mark.slow
def test_datasets_of_a_data_module(lightning: Any) -> None:
    samples = TensorDataset(X, Y)

    def split_of_module(train: Any, split: str = "train", **members: Any) -> Any:
        loaders = {"train_dataloader": lambda self: train, "val_dataloader": lambda self: [DataLoader(samples)]}
        made = type("Data", (lightning.LightningDataModule,), loaders | members)
        return data_module_split(lambda folder: made(), RunConfig(), split)

    pairs = split_of_module(DataLoader(samples, batch_size=7, shuffle=True))
    assert [(float(x), float(y)) for x, y in (pairs[index] for index in range(3))] == [(0, 1), (1, 2), (2, 9)]
    assert pairs.collate is None
    assert len(split_of_module(DataLoader(samples), "validation")) == 3
    own = DataLoader(samples, collate_fn=lambda batch: [torch.stack(part) for part in zip(*batch, strict=True)])
    assert split_of_module(own).collate is not None
    for train, words in (
        (DataLoader(Streamed()), "Streamed is an iterable dataset"),
        ([DataLoader(samples)] * 2, r"Data\.train_dataloader returned a list; return one DataLoader"),
        (
            DataLoader(samples, sampler=WeightedRandomSampler([1.0] * 3, 3)),
            "has a WeightedRandomSampler, but the suite",
        ),
    ):
        with pytest.raises(InputError, match=words):
            split_of_module(train)
    with pytest.raises(InputError, match="Data defines on_after_batch_transfer"):
        split_of_module(DataLoader(samples), on_after_batch_transfer=lambda self, batch, index: batch)


class SplitWhenMade:
    """A data module, recognized by its methods, that splits a set at random in its constructor."""

    def __init__(self, folder: str) -> None:
        assert folder == "here"
        numbers = torch.arange(100)
        self.parts = random_split(TensorDataset(numbers, numbers), [80, 20])

    def setup(self, stage: str) -> None:
        """Nothing is left to do."""

    def train_dataloader(self) -> Any:
        """Of four fifths."""
        return DataLoader(self.parts[0])

    def val_dataloader(self) -> Any:
        """Of the rest."""
        return DataLoader(self.parts[1])


def test_a_split_that_a_constructor_draws_is_the_same_for_both_sets() -> None:
    config = RunConfig()
    config.data.root = "here"
    pairs = [data_module_split(SplitWhenMade, config, split) for split in ("train", "validation")]
    train, validation = ({int(each[index][0]) for index in range(len(each))} for each in pairs)
    assert train | validation == set(range(100))
    assert not train & validation


def test_samplers_that_choose_samples_are_refused() -> None:
    samples = TensorDataset(torch.arange(9))

    def loader(sampler: Any, *, batched: bool) -> DataLoader[Any]:
        both: dict[str, Any] = {"batch_sampler": BatchSampler(sampler, 3, False)} if batched else {"sampler": sampler}
        return DataLoader(samples, **both)

    for sampler, words in (
        (SubsetRandomSampler([0, 1, 2]), "Data has a SubsetRandomSampler, but the suite takes each sample once"),
        (RandomSampler(samples, replacement=True), "Data has a RandomSampler with replacement, but"),
        (RandomSampler(samples, num_samples=4), "Data has a RandomSampler that takes 4 for a set of 9 samples"),
        (RandomSampler(samples, num_samples=18), "Data has a RandomSampler that takes 18 for a set of 9 samples"),
        (SequentialSampler(range(5)), "Data has a SequentialSampler that takes 5 for a set of 9 samples"),
        (
            DistributedSampler(TensorDataset(torch.arange(6)), num_replicas=2, rank=0),
            "Data has a DistributedSampler that takes 6 for a set of 9 samples",
        ),
        ([0, 1, 2], "Data has a list, but"),
    ):
        for batched in (False, True):
            with pytest.raises(InputError, match=words):
                check_order(loader(sampler, batched=batched), "Data")
    for sampler in (RandomSampler(samples), SequentialSampler(samples), DistributedSampler(samples, 2, 0)):
        check_order(loader(sampler, batched=False), "Data")
        check_order(loader(sampler, batched=True), "Data")
    check_order(DataLoader(samples, batch_size=None, shuffle=True), "Data")


def test_staging_of_a_set_without_a_folder_is_refused() -> None:
    config = RunConfig()
    assert files_nowhere(config) == []
    config.staging.destination = "/local"
    with pytest.raises(InputError, match=r"does not take the folder data\.root, so staging\.destination \(/local\)"):
        files_nowhere(config)


def test_a_loader_whose_dataset_makes_the_batches_is_refused() -> None:
    class Batches:
        def setup(self, stage: str) -> None:
            self.set = TensorDataset(torch.zeros(4, 8, 1), torch.zeros(4, 8))

        def train_dataloader(self) -> Any:
            return DataLoader(self.set, batch_size=None)

    with pytest.raises(InputError, match=r"Batches.train_dataloader has batch_size None, so its dataset makes the"):
        data_module_split(lambda folder: Batches(), RunConfig(), "train")
