"""Four ranks pretend to be on two nodes of two, and rank 0 prints the curves of their messages and who sent to whom."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import torch

from hpcbench.characterisation import message_curves
from hpcbench.parallel.group import connect
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together


def main() -> None:
    group = connect(detect(os.environ), timeout_s=60)
    group.launch = replace(group.launch, nodes=2, node_rank=group.rank // 2, local_rank=group.rank % 2, local_size=2)
    met: set[tuple[int, int, int]] = set()
    original = message_curves.exchange

    def exchange(peers: Any, neighbours: tuple[int, int], sent: torch.Tensor, received: torch.Tensor) -> None:
        sent.fill_(float(group.rank))
        original(peers, neighbours, sent, received)
        if peers.size == group.world_size:
            met.add((group.rank, neighbours[0], int(received[0])))

    message_curves.exchange = exchange
    curves, _ = message_curves.messages_alone((), group, torch.device("cpu"), 60)
    everyone = group.all_gather_object(sorted(met))
    if group.rank == 0:
        said = [(curve.operation, curve.ranks, curve.nodes, curve.link) for curve in curves]
        print(json.dumps([said, [pair for each in everyone for pair in each]]), flush=True)
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
