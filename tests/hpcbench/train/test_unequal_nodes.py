"""Ranks on unequal nodes, where ``auto`` means something else on each, or on one GPU are refused before they train."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
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


@pytest.mark.parametrize(("others", "shared"), [
    ([(0, "b"), (1, "a")], None),  # another GPU of the node, and one that is called alike elsewhere
    ([(1, "b"), (0, "a")], "ranks 0 and 2 are on one node and have the same GPU; start at most one rank per GPU"),
])  # fmt: skip
def test_ranks_that_would_share_a_gpu_are_refused(
    others: list[tuple[int, str]], shared: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two ranks on a workstation with one GPU, of which NCCL said only that it is a duplicate."""

    class OneOfThree(Group):
        def all_gather_object(self, value: T) -> list[T]:
            assert value == (0, "a")
            return [value, *others]  # type: ignore[list-item]

    module = SimpleNamespace(get_device_properties=lambda device: SimpleNamespace(uuid="a"))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    group = OneOfThree(Launch(world_size=3, local_size=3), torch.device("cuda", 0), None)
    with nullcontext() if shared is None else pytest.raises(InputError, match=shared):
        ranks.check_own_devices(group, group.device)
