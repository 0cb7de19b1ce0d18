"""Ranks that train a sharded model for a step, and print what rank 0 put into collectives of parameters and gradients.

Arguments: application, split, micro-batches, and the least number of parameters of a unit.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.parallel.group import connect
from hpcbench.parallel.mesh import make_mesh
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.parallel.sharded import shard_model
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.train.dropout import set_sample_keys
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

WHOLE = {"_allgather_base_": 0, "_reduce_scatter_base_": 1, "allreduce_": 0}
"""Collectives, and which of their arguments has the bytes of all ranks: output, input, and both."""


class Traffic(TorchDispatchMode):
    """Bytes that go into each kind of collective."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = dict.fromkeys(WHOLE, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split("::")[1].split(".")[0]
        if func.namespace == "c10d" and name in WHOLE:
            self.bytes[name] += sum(tensor.nbytes for tensor in tensors(args[WHOLE[name]]))
        return func(*args, **(kwargs or {}))


def tensors(value: Tensor | Iterable[Tensor]) -> Iterable[Tensor]:
    """One tensor or several."""
    return [value] if isinstance(value, Tensor) else value


def main() -> None:
    name, spatial, *numbers = sys.argv[-4:]
    micro_batches, at_least = map(int, numbers)
    torch.set_num_threads(1)
    group = connect(detect(os.environ))
    application = find_application(name)
    config = resolve(application, "smoke", overrides={"parallel.spatial": spatial})
    mesh = make_mesh(group, mesh_shape(group.world_size, spatial))
    model = application.module("model").build_model(config)
    if mesh.axes:
        application.module("parallel").parallelize(model, config, mesh)
    gradients = shard_model(model, group, mesh.shape, at_least)
    size = (config.data.sample_size,) * 3
    part = own_part(torch.rand(2, config.data.channels, *size), mesh.axes)
    set_sample_keys(model, torch.arange(2))
    traffic = Traffic()
    with traffic:
        for micro_batch in range(micro_batches):
            gradients.enabled = micro_batch == micro_batches - 1
            model(part).sum().backward()
    if group.is_main:
        print(json.dumps(traffic.bytes))
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
