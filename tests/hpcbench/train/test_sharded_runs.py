"""Runs whose parameters and optimizer state are sharded, on spatial meshes and with activation checkpointing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from hpcbench.config.schema import ParallelConfig, RunConfig
from hpcbench.parallel.activation_checkpointing import checkpoint_activations
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.sharded import units
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.check_mesh import check_sharding
from hpcbench.train.checkpoint_io import load_newest
from staging.errors import InputError

from .conftest import Train
from .test_split_runs import finished, losses

pytestmark = pytest.mark.usefixtures("forked_processes")

Start = Callable[..., "subprocess.Popen[str]"]
LAMB = (
    "--optim.name",
    "nvlamb",
    "--optim.weight_decay",
    "0.01",
    "--train.target",
    "1e-9",
    "--train.precision",
    "64-true",
)


@pytest.mark.slow
def test_sharded_and_split_and_checkpointed_is_one_process_and_goes_on_as_one(
    train: Train, start: Start, tmp_path: Path
) -> None:
    """Ten validation samples in batches of two leave ranks with fewer passes, which FSDP does not forgive."""
    alone, folder = tmp_path / "alone", tmp_path / "run"
    assert train(alone, *LAMB, "--train.local_batch_size", "4", "--train.max_epochs", "3") == 3
    mesh = ("--parallel.devices", "4", "--parallel.spatial", "2", "--parallel.shard_states", "true")
    more = ("--parallel.activation_checkpointing", "true", "--train.local_batch_size", "2", "--train.max_epochs", "2")
    finished(start(folder, *LAMB, *mesh, *more, "--train.eval_batch_size", "2"))
    assert losses(folder) == pytest.approx(losses(alone)[:12], rel=1e-9)
    found, known = load_newest(folder / "checkpoints"), load_newest(alone / "checkpoints")
    assert found is not None
    assert known is not None
    assert {name: tensor.shape for name, tensor in found.model.items()} == {
        name: tensor.shape for name, tensor in known.model.items()
    }
    single = ("--parallel.devices", "1", "--parallel.spatial", "1", "--parallel.shard_states", "false")
    whole = ("--train.local_batch_size", "4", "--train.max_epochs", "3")
    assert train(folder, "--resume", *single, *whole) == 3
    assert losses(folder) == pytest.approx(losses(alone), rel=1e-8)
    scores = [list(pd.read_csv(each / "epochs.csv")["mae"]) for each in (folder, alone)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-8)
    assert RunFolder.open(folder).read_summary().resumed == 1


@pytest.mark.slow
def test_a_sharded_run_goes_on_sharded(start: Start, tmp_path: Path) -> None:
    sharded = (*LAMB, "--train.local_batch_size", "2", "--parallel.devices", "2", "--parallel.shard_states", "true")
    finished(start(tmp_path / "once", *sharded, "--train.max_epochs", "3"))
    finished(start(tmp_path / "twice", *sharded, "--train.max_epochs", "2"))
    finished(start(tmp_path / "twice", "--resume", "--parallel.devices", "2", "--train.max_epochs", "3"))
    assert losses(tmp_path / "once") == losses(tmp_path / "twice")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("--parallel.spatial", "2"), "has one; start more ranks, or set it false"),
        pytest.param(
            ("--train.compile", "true"), "train.compile (True) needs whole parameters", marks=pytest.mark.slow
        ),
        pytest.param(("--train.precision", "16-mixed"), "16-mixed scales whole gradients", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_sharded_is_one_line(
    settings: tuple[str, ...], words: str, start: Start, tmp_path: Path
) -> None:
    said = finished(start(tmp_path / "run", "--parallel.devices", "2", "--parallel.shard_states", "true", *settings), 2)
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_a_torch_that_cannot_shard_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest that the package accepts has an FSDP2 without messages of one's own."""
    config = RunConfig(parallel=ParallelConfig(shard_states=True))
    check_sharding(config, MeshShape(2))
    monkeypatch.delattr(FSDPModule, "set_custom_all_gather")
    with pytest.raises(InputError, match=r"newer torch than .*, whose FSDP2 lacks set_custom_all_gather; install"):
        check_sharding(config, MeshShape(2))


def test_units_are_the_smallest_modules_that_are_large_enough() -> None:
    inner = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 2))
    model = nn.Sequential(inner, nn.Linear(10, 10), nn.Linear(2, 2))
    assert list(units(model, 100)) == [inner[0], model[1]]
    assert list(units(model, 120)) == [inner]
    assert list(units(model, 1000)) == []


def test_checkpointed_modules_have_the_same_gradients_and_move_statistics_once() -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()), nn.Conv2d(3, 1, 1))] * 1
    plain = models[0].double()
    again = nn.Sequential(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()), nn.Conv2d(3, 1, 1)).double()
    again.load_state_dict(plain.state_dict())
    checkpoint_activations([again[0]])
    assert list(again.state_dict()) == list(plain.state_dict())
    inputs = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    kept = []
    for model in (plain, again):
        count = 0

        def note(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            loss = model(inputs).square().sum()
        loss.backward()
        kept.append(count)
    assert kept[1] < kept[0]
    for one, other in zip(again.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    for one, other in zip(again.buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, other)
