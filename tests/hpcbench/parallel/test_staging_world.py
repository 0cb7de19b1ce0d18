"""The ranks of a run as staging sees them."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpcbench.parallel.staging_world import GroupWorld


def test_ranks_meet_in_one_type_whatever_torchs_default_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is the process's, and training in double precision changes it while a thread stages."""
    sent: list[torch.Tensor] = []
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, **_: sent.append(tensor))
    world: Any = object.__new__(GroupWorld)
    world._processes = None
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        world.barrier()
    finally:
        torch.set_default_dtype(before)
    assert sent[0].dtype == torch.float32
