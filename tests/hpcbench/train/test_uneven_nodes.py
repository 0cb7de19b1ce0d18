"""Ranks that have different numbers of threads, as where a node has fewer ranks than others, continue a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch
from torch import nn

from hpcbench.config.schema import RunConfig
from hpcbench.parallel.group import Group
from hpcbench.train.checkpoint_io import Checkpoint, load, save
from hpcbench.train.checkpoint_times import CheckpointTimes
from hpcbench.train.checkpointing import Checkpoints
from hpcbench.train.observers import Observers
from hpcbench.train.state import State
from staging.errors import InputError
from staging.ranks.launch import Launch

T = TypeVar("T")
UNEVEN = [8, 8, 16]
"""Threads of three ranks on two nodes of 16 cores."""


class Ranks(Group):
    """One of several ranks that have so many threads."""

    def __init__(self, rank: int, threads: list[int]) -> None:
        super().__init__(Launch(rank=rank, world_size=len(threads)), torch.device("cpu"), None)
        self.threads = threads

    def all_gather_object(self, value: T) -> list[T]:
        assert value == self.threads[self.rank]
        return self.threads  # type: ignore[return-value]

    def broadcast_object(self, value: T, source: int = 0) -> T:
        return value


def checkpoints_of(rank: int, threads: list[int], folder: Path) -> Checkpoints:
    group, model = Ranks(rank, threads), nn.Linear(2, 1)
    run: Any = SimpleNamespace(
        config=RunConfig(), application=SimpleNamespace(name="tones"), seed=1, launch=group.launch, group=group,
        precision=SimpleNamespace(name="32-true", state_dict=dict, load_state_dict=lambda state: None),
        threads=threads[rank], global_batch_size=6, shard_nodes=None, is_first=rank == 0,
        folder=SimpleNamespace(checkpoints=folder, sync=lambda: None), console=SimpleNamespace(say=pytest.fail),
    )  # fmt: skip
    step: Any = SimpleNamespace(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), statistics=SimpleNamespace(),
        observers=Observers([]),
    )  # fmt: skip
    return Checkpoints(run, step, (24, 10), CheckpointTimes())


def written(threads: list[int], folder: Path) -> Checkpoint:
    """The checkpoint of so many ranks within an epoch."""
    state = State(epoch=1, micro_batch=3, step=9)
    return load(save(checkpoints_of(0, threads, folder).content(state, []), folder, 2))


def test_every_rank_continues_with_its_own_threads(tmp_path: Path) -> None:
    found = written(UNEVEN, tmp_path)
    for rank in range(3):
        assert checkpoints_of(rank, UNEVEN, tmp_path).restore(found).resumed == 1
    for rank, threads in ((0, [4, 8, 16]), (2, [8, 8, 8])):
        problem = f"made with parallel.threads {UNEVEN[rank]}, this run has {threads[rank]}; use the same"
        with pytest.raises(InputError, match=problem):
            checkpoints_of(rank, threads, tmp_path).restore(found)
    with pytest.raises(InputError, match="made with world size 3, this run has 4"):
        checkpoints_of(3, [*UNEVEN, 16], tmp_path).restore(found)


def test_equal_threads_are_one_number_as_in_checkpoints_of_earlier_versions(tmp_path: Path) -> None:
    found = written([8, 8, 8], tmp_path)
    assert found.setup["parallel.threads"] == 8
    assert checkpoints_of(2, [8, 8, 8], tmp_path).restore(found).resumed == 1
    with pytest.raises(InputError, match=r"made with parallel\.threads 8, this run has 16"):
        checkpoints_of(2, UNEVEN, tmp_path).restore(found)
