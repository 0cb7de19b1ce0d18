"""The process groups of a mesh: whom they hold, how long they wait, and what the first message of one is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from hpcbench.parallel import mesh, node_peers
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh_shape import MeshShape
from staging.ranks.launch import Launch

SHAPE = MeshShape(2, (2, 3))


@pytest.mark.parametrize("rank", range(12))
def test_groups_are_the_ranks_along_an_axis_and_wait_as_long_as_the_run_says(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of torch's device mesh waited for 10 minutes (NCCL) or 30 (gloo)."""
    made: list[tuple[list[int], timedelta]] = []
    monkeypatch.setattr(dist, "new_group", lambda ranks, timeout, **options: made.append((ranks, timeout)))
    monkeypatch.setattr(mesh, "open_peers", lambda processes, group, timeout_s: None)
    mesh.make_mesh(Group(Launch(rank, 12), torch.device("cpu"), None), SHAPE, timeout_s=7)
    places = torch.arange(12).view(2, 2, 3)
    data, first, second = (place.item() for place in torch.nonzero(places == rank)[0])
    expected = places[data, :, second], places[data, first], places[data].flatten()
    assert made == [(ranks.tolist(), timedelta(seconds=7)) for ranks in expected]


def test_all_ranks_of_a_group_on_accelerators_meet_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch asks for: a halo may be a message of some of them, for which NCCL would wait without end."""
    met: list[Tensor] = []

    class Two:
        size = 2

        def __init__(self, processes: Any) -> None:
            self.all_reduce = met.append

    monkeypatch.setattr(node_peers, "ProcessPeers", Two)
    device = torch.device("meta")
    node_peers.open_peers(None, Group(Launch(0, 2), device, None), 60)
    assert [tensor.device for tensor in met] == [device]
