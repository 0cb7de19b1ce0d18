"""Datasets of other libraries as pairs: dicts, collate functions, splits of a function, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, random_split

from hpcbench.adapters.pairs import Pairs, split_of
from hpcbench.config.schema import RunConfig
from hpcbench.data.bad_samples import blame
from hpcbench.data.loader import BatchReader
from staging.errors import InputError


class Torched:
    """As a Hugging Face ``Dataset`` after ``with_format("torch")``: length, and a dict of tensors for a number."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> dict[str, Any]:
        value = self.values[index]
        return {"x": torch.tensor([value]), "y": torch.tensor(2 * value), "name": f"sample {index}"}


class Streamed(IterableDataset[Any]):
    """Samples without numbers."""

    def __iter__(self) -> Any:
        return iter([(0.0, 0.0)])


def test_entries_of_a_dict_are_inputs_and_targets() -> None:
    inputs, targets = BatchReader(Pairs(Torched([1.0, 2.0, 3.0]), ("x", "y"))).read(np.array([2, 0]))
    assert inputs.tolist() == [[3.0], [1.0]]
    assert targets.tolist() == [6.0, 2.0]


def double(samples: list[Any]) -> dict[str, Any]:
    """A collate function of dicts that needs all of its samples."""
    largest = max(float(sample["x"]) for sample in samples)
    return {"x": torch.cat([sample["x"] for sample in samples])[:, None] / largest,
            "y": torch.stack([sample["y"] for sample in samples])}  # fmt: skip


def test_a_collate_function_makes_the_batches_also_of_a_part_and_of_none() -> None:
    reader = BatchReader(Subset(Pairs(Torched([1.0, 2.0, 4.0]), ("x", "y"), double), range(1, 3)))
    inputs, targets = reader.read(np.array([0, 1]))
    assert inputs.tolist() == [[0.5], [1.0]]
    assert targets.tolist() == [4.0, 8.0]
    assert reader.read(np.array([], int))[0].shape == (0, 1)


def test_a_bad_sample_is_found_behind_a_collate_function() -> None:
    found = blame(Pairs(Torched([1.0, float("nan")]), ("x", "y"), double), [0, 1])
    assert found is not None
    assert "sample 1" in found
    assert "nan" in found


@pytest.mark.parametrize(
    ("dataset", "keys", "words"),
    [
        (Torched([1.0]), None, "a sample is a dict of x, y, name; name its inputs and targets with `--keys"),
        (Torched([1.0]), ("x", "z"), "a sample has no entry 'z', but x, y, name"),
        (Torched([1.0]), ("x", "name"), "'name' of a sample is a str, not a tensor"),
        (TensorDataset(torch.zeros(1)), None, "a sample is a tuple of 1, not a pair of inputs and targets"),
        (Streamed(), None, "Streamed is an iterable dataset, whose samples have no numbers"),
        (iter([1]), None, "list_iterator is an iterable dataset"),
    ],
)
def test_what_is_no_dataset_of_pairs_is_refused(dataset: Any, keys: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Pairs(dataset, keys)[0]


def test_splits_of_a_function_are_a_pair_or_a_dict_and_random_ones_the_same_each_time() -> None:
    config = RunConfig()
    config.data.root = "here"

    def drawn(folder: str) -> Any:
        assert folder == "here"
        whole: Dataset[Any] = TensorDataset(torch.arange(100), torch.arange(100))
        return random_split(whole, [80, 20])

    torch.manual_seed(1)
    before = torch.random.get_rng_state(), random.getstate()
    sets = [{int(x) for x, _ in split_of(drawn, config, split)} for split in ("train", "validation", "train")]
    assert sets[0] == sets[2]
    assert sets[0] | sets[1] == set(range(100))
    assert not sets[0] & sets[1]
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    named = split_of(lambda folder: {"train": Torched([1.0]), "validation": Torched([2.0, 3.0])}, config, "validation")
    assert len(named) == 2
    with pytest.raises(InputError, match=r"returned a int; return the pair \(training set, validation set\)"):
        split_of(lambda folder: 3, config, "train")


def test_files_and_check_of_a_dataset_are_used_where_they_are_what_the_suite_calls_so() -> None:
    samples = Torched([1.0, float("nan")])
    for files, known in (
        (["a/0.npy", "a/1.npy"], [Path("a/0.npy"), Path("a/1.npy")]),
        (np.array(["0.npy", "1.npy"]), [Path("0.npy"), Path("1.npy")]),
        (["both.h5"], None),
        ({"train": 1, "test": 2}, None),
        ("ab", None),
    ):
        samples.files, samples.check = files, True  # type: ignore[attr-defined]
        pairs = Pairs(samples, ("x", "y"))
        assert getattr(pairs, "files", None) == known
        assert "nan" in str(blame(pairs, [0, 1]))
