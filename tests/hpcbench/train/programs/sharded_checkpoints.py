"""Ranks with a model sharded by FSDP2 save it while they train on; rank 0 prints what all found."""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hpcbench.parallel.group import connect
from hpcbench.parallel.sharded import gathered
from hpcbench.planning.checkpoint_memory import checkpoint_bytes
from hpcbench.train.checkpoint_io import Checkpoint, load
from hpcbench.train.checkpoint_writer import CheckpointWriter
from hpcbench.train.host_copy import tensors, tree_bytes
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together


def same(one: Any, other: Any) -> bool:
    """Whether two trees have the same values."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Some steps, with messages among the ranks."""
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(step)).double()).square().sum().backward()
        optimizer.step()


def main() -> None:
    folder = Path(os.environ.get("SCRATCH") or sys.argv[-1]) / "checkpoints"
    group = connect(detect(os.environ), timeout_s=100)
    torch.manual_seed(0)
    # Layers of 5, 7 and 1 rows, which no number of ranks divides, and of which some ranks have nothing.
    layers = (nn.Conv1d(2, 5, 3, padding=1), nn.BatchNorm1d(5), nn.Flatten(), nn.Linear(20, 7), nn.Linear(7, 1))
    model = nn.Sequential(*layers).double()
    shape, names = ((2, 2), ("spatial", "data")) if group.world_size == 4 else ((2,), ("data",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    copied = copy.deepcopy(model)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    planned = checkpoint_bytes(copied, 2, mesh.size(mesh.ndim - 1))
    writer = CheckpointWriter(folder, 9, group, sharded=True, timeout_s=100)
    expected = []
    for number in range(3):
        train(model, optimizer, 3)
        content = Checkpoint(model.state_dict(), optimizer.state_dict(), {}, {"epoch": 0, "step": number}, {})
        whole = {"model": dict(gathered(content.model)), "optimizer": gathered(content.optimizer)}
        expected.append(copy.deepcopy(whole))  # not all of it is sharded, and so new already
        writer.save(content, wait=number == 1)
    train(model, optimizer, 20)
    writer.wait()
    found: dict[str, Any] = {"host_bytes": writer.host_bytes, "planned": planned}
    if group.is_main:
        read = [load(path) for path in sorted(folder.glob("*.pt"))]
        found["same"] = [
            same({"model": one.model, "optimizer": one.optimizer}, other)
            for one, other in zip(read, expected, strict=True)
        ]
        found["tensors"] = len(list(tensors(expected[0])))
        found["whole_bytes"] = tree_bytes(expected[0])
        folder.rename(folder.with_name("before"))
        folder.touch()
    group.barrier()
    writer.save(content)
    try:
        writer.wait()
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    everyone = group.all_gather_object(found)
    assert dist.is_initialized()
    if group.is_main:
        print(json.dumps(everyone))
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
