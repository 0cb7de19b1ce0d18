"""Ranks that make a step for each case, and print what rank 0 put into each kind of collective: count and bytes.

The argument is a JSON list of cases: the least number of parameters of a unit, and settings.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpcbench.application import find_application
from hpcbench.characterisation.steps import full_step
from hpcbench.config.resolve import resolve
from hpcbench.measure.communication import Communication
from hpcbench.measure.phases import Phases
from hpcbench.measure.shared_clock import SharedClock
from hpcbench.parallel.exposed import UNRECORDED
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.parallel.sharded import shard_model
from hpcbench.train.ranks import Ranks, connect_ranks
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

OPERATIONS = {"allreduce_": ("all_reduce", 0), "_allgather_base_": ("all_gather", 0),
              "_reduce_scatter_base_": ("reduce_scatter", 1)}  # fmt: skip
"""Collectives, and which of their arguments has the bytes of all ranks: output, input, and both."""


class Sent(TorchDispatchMode):
    """Count and bytes of each kind of collective."""

    def __init__(self) -> None:
        super().__init__()
        self.sums_by_operation: dict[str, list[int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split("::")[1].split(".")[0]
        if func.namespace == "c10d" and name in OPERATIONS:
            operation, place = OPERATIONS[name]
            value = args[place]
            tensors = [value] if isinstance(value, torch.Tensor) else value
            sums = self.sums_by_operation.setdefault(operation, [0, 0])
            sums[0] += 1
            sums[1] += sum(tensor.nbytes for tensor in tensors)
        return func(*args, **(kwargs or {}))


def sent(ranks: Ranks, settings: dict[str, Any]) -> dict[str, list[int]]:
    """What the second of two steps sends, when all states exist."""
    application = find_application("cosmoflow")
    config = resolve(application, "smoke", overrides=settings)
    phases = Phases(PhaseTimer(), ranks.device)
    communication = Communication(phases, SharedClock(ranks.group))
    shape = mesh_shape(ranks.launch.world_size, config.parallel.spatial)
    step = full_step(application, config, ranks, shape, phases, communication)
    step()
    traffic = Sent()
    with traffic:
        step()
    return traffic.sums_by_operation


def main() -> None:
    cases = json.loads(sys.argv[-1])
    config = resolve(find_application("cosmoflow"), "smoke", overrides={"parallel.threads": 1})
    with connect_ranks(detect(os.environ), config) as ranks:
        found = []
        for at_least, settings in cases:
            shard_model.__defaults__ = (at_least, UNRECORDED)
            found.append(sent(ranks, settings))
        if ranks.launch.rank == 0:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
    leave_together(0)
