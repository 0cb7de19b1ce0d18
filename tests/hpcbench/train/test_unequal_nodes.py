"""Ranks on unequal nodes, where ``auto`` would mean something else on each, are refused before they train."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest
import torch

from hpcbench.config.schema import RunConfig
from hpcbench.parallel import precision
from hpcbench.parallel.group import Group
from hpcbench.train import ranks
from hpcbench.train.ranks import connect_ranks
from staging.errors import InputError
from staging.ranks.launch import Launch

T = TypeVar("T")


class TwoNodes(Group):
    """Two ranks with the same values, except for those in ``elsewhere``, by what this one has."""

    def __init__(self, elsewhere: dict[str, str]) -> None:
        super().__init__(Launch(world_size=2), torch.device("cpu"), None)
        self.elsewhere = {json.dumps(here): json.dumps(there) for here, there in elsewhere.items()}

    def all_gather_object(self, value: T) -> list[T]:
        other: Any = self.elsewhere.get(value, value) if isinstance(value, str) else value
        return [value, other]


@pytest.mark.parametrize(("elsewhere", "problem"), [
    ({"bf16-mixed": "32-true"},
     'train.precision auto differs between ranks: "bf16-mixed" on rank 0, "32-true" on rank 1; set train.precision, '
     "such as 32-true"),
    ({"cpu": "cuda"},
     'the kind of device differs between ranks: "cpu" on rank 0, "cuda" on rank 1; start all ranks on equal nodes, or '
     "set parallel.accelerator cpu"),
])  # fmt: skip
def test_nodes_on_which_auto_means_something_else_are_refused(
    elsewhere: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "processor_flags", lambda: frozenset({"amx_bf16"}))
    monkeypatch.setattr(ranks, "connect", lambda *words, **options: TwoNodes(elsewhere))
    config = RunConfig()
    config.parallel.accelerator, config.parallel.threads = "cpu", torch.get_num_threads()
    assert config.train.precision == "auto"
    with pytest.raises(InputError) as caught, connect_ranks(Launch(world_size=2), config):
        pytest.fail("the ranks train together")
    assert str(caught.value) == problem
