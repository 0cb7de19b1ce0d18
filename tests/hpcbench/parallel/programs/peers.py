"""Four ranks form two pairs of peers, twice; rank 0 prints as one JSON line what each found.

The first time all can connect; then one rank of the first pair has no place for its socket, as in a container.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.node_peers import open_peers
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together


def pair(group: Group) -> dict[str, Any]:
    """What the peers of this rank are, and make of messages and sums."""
    first = group.rank - group.rank % 2
    processes = dist.new_group([first, first + 1], use_local_synchronization=True)
    peers = open_peers(processes, group, timeout_s=60)
    own, room = torch.full((3, 2), group.rank, dtype=torch.float64), torch.empty(3, 2, dtype=torch.float64)
    peers.start([(1 - peers.rank, own)], [(1 - peers.rank, room)])()
    return {
        "kind": type(peers).__name__,
        "received": room.tolist(),
        "stacked": peers.stacked(torch.tensor([group.rank, 1])).tolist(),
        "sum": peers.all_reduce(torch.tensor([0.25 + group.rank])).tolist(),
    }


def main() -> None:
    torch.set_num_threads(1)
    group = connect(detect(os.environ), timeout_s=60)
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        found: dict[str, Any] = {"together": pair(group)}
        if group.rank == 1:
            tempfile.tempdir = str(Path(folder) / "missing")
        found["apart"] = pair(group)
        found["left"] = [path.name for path in Path(folder).iterdir()]
    everyone = group.all_gather_object(found)
    if group.rank == 0:
        print(json.dumps(everyone), flush=True)
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
