"""Datasets of which each rank reads its part: through wrappers, for loaders, and where the task allows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from hpcbench.config.schema import RunConfig
from hpcbench.data.loader import first_samples, open_loader
from hpcbench.data.shard import Shard
from hpcbench.data.spatial_part import part_of, slices
from hpcbench.measure.phases import Phases
from hpcbench.parallel.simulated_ranks import data_ranks
from hpcbench.parallel.spatial.extents import Extent
from hpcbench.train.data_path import DataPath
from staging.phase_timer import PhaseTimer

AXES: Any = {2: SimpleNamespace(rank=1, size=2), 3: SimpleNamespace(rank=0, size=3)}
"""The second of two ranks in height, the first of three in width."""
CPU = torch.device("cpu")


class Fields(Dataset[tuple[Tensor, Tensor]]):
    """Sample i: i, and i + 10 * row + column in two channels of 7 rows and 5 columns."""

    input_shape = (2, 7, 5)

    def __init__(self, extents: Any | None = None) -> None:
        self.rows, self.columns = slices(extents or {}, (2, 3))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        places = 10 * torch.arange(7)[:, None] + torch.arange(5)
        return (index + places)[self.rows, self.columns].expand(2, -1, -1), torch.tensor(index)

    def part(self, extents: Any) -> Fields:
        return Fields(extents)


def test_slices_stand_in_the_order_of_the_array() -> None:
    assert slices({4: Extent(1, 3)}, (2, 4, 3)) == (slice(None), slice(1, 3), slice(None))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_part_is_cut_by_the_size_of_the_whole_and_numbers_stay(wrapped: bool) -> None:
    samples: Any = first_samples(Shard(first_samples(Fields(), 3, "n"), np.array([5, 0, 2]), 9), 7, "n")
    samples = samples if wrapped else Fields()
    own = part_of(samples, AXES)
    assert own is not None
    assert len(own) == len(samples) == (7 if wrapped else 4)
    inputs, target = own[2]
    # 7 rows in two parts: 0 to 2 and 3 to 6; 5 columns in three: the first has one.
    assert inputs.shape == (2, 4, 1)
    assert torch.equal(inputs, samples[2][0][:, 3:, :1])
    assert target == 2


@pytest.mark.parametrize("samples", [[1, 2], Shard([1, 2], np.array([1, 0]), 2), first_samples([1, 2], 1, "n")])
def test_other_datasets_are_read_whole(samples: Any) -> None:
    assert part_of(samples, AXES) is None
    assert not cast("Any", open_loader(cast("Any", None), RunConfig(), "train", samples, 0, CPU, AXES)).parts


def test_a_loader_says_whether_it_loads_parts() -> None:
    for axes, shape in ((AXES, (2, 2, 4, 1)), ({}, (2, 2, 7, 5)), (None, (2, 2, 7, 5))):
        loader = open_loader(cast("Any", None), RunConfig(), "train", Fields(), 0, CPU, axes)
        inputs, targets = next(loader.load([np.array([3, 1])]))
        assert loader.parts == bool(axes)
        assert inputs.shape == shape
        assert targets.tolist() == [3, 1]
    empty, _ = next(open_loader(cast("Any", None), RunConfig(), "train", Fields(), 0, CPU, AXES).load([np.array([])]))
    assert empty.shape == (0, 2, 4, 1)


@pytest.mark.parametrize("training", [True, False])
def test_a_rank_reads_its_part_where_the_task_can_prepare_it_and_cuts_whole_samples_elsewhere(training: bool) -> None:
    task = SimpleNamespace(reads_parts=lambda asked: asked is training)
    run: Any = SimpleNamespace(
        application=None, config=RunConfig(), device=CPU, mesh=SimpleNamespace(axes=AXES), task=task, threads=1,
        data_ranks=data_ranks(0, 1), phases=Phases(PhaseTimer(), CPU),
    )  # fmt: skip
    data = DataPath(run, Fields(), Fields())
    assert (data.training_loader.parts, data.validation_loader.parts) == (training, not training)
    loaded = [
        (loader, next(loader.load([np.array([1, 2])]))[0]) for loader in (data.training_loader, data.validation_loader)
    ]
    assert {inputs.shape for _, inputs in loaded} == {(2, 2, 4, 1), (2, 2, 7, 5)}
    first, second = (data.local_part(inputs, loader) for loader, inputs in loaded)
    assert torch.equal(first, second)
    assert first.shape == (2, 2, 4, 1)
