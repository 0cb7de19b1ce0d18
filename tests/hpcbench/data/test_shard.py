"""A shard: its samples under their numbers in the whole set, and no others."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.config.schema import RunConfig
from hpcbench.data.dali_samples import DaliSamples, StoredArray
from hpcbench.data.loader import BatchReader, open_loader
from hpcbench.data.shard import Shard, some_sample
from staging.errors import DataError

SHARD: Any = Shard([(torch.full((2,), number), torch.tensor(number)) for number in (3, 1)], np.array([3, 1]), 5)


def test_a_shard_has_the_numbers_of_the_whole_set() -> None:
    assert len(SHARD) == 5
    assert [int(SHARD[number][1]) for number in (1, 3)] == [1, 3]
    assert SHARD.also("ab")[3] == "a"
    assert (some_sample(SHARD), some_sample([7, 8])) == (3, 0)


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_sample_of_another_node_is_an_error(number: int) -> None:
    with pytest.raises(DataError, match=f"sample {number}: is in the shard of another node"):
        SHARD[number]


def test_an_empty_batch_of_a_shard_has_the_shape_of_its_samples() -> None:
    inputs, targets = BatchReader(SHARD).read(np.array([], np.int64))
    assert (inputs.shape, targets.shape) == ((0, 2), (0,))


def test_dali_is_given_the_files_by_the_numbers_of_the_whole_set() -> None:
    array = StoredArray((2,), "float32")
    files = [Path("c"), Path("a")]
    described = DaliSamples("npy", files, array, array, finish=lambda inputs, targets: (inputs, targets))
    application: Any = SimpleNamespace(module=lambda name: SimpleNamespace(dali_samples=lambda *_: described))
    config = RunConfig()
    config.data.loader = "dali"
    loader: Any = open_loader(application, config, "train", SHARD, 1, torch.device("cpu"))
    assert (loader.described.files[3], loader.described.files[1]) == (Path("c"), Path("a"))
    loader = open_loader(application, config, "validation", [0, 1], 1, torch.device("cpu"))
    assert loader.described.files == files
