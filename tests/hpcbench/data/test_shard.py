"""A shard: its samples under their numbers in the whole set, and no others."""

from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.data.loader import BatchReader
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
