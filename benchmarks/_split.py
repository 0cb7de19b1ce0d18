"""Models of published size, their samples, and what a pass saves, for the benchmarks of spatial parallelism."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.parallel.spawn import rank_environments

LAYOUTS = {5: torch.channels_last_3d, 4: torch.channels_last}


@dataclass
class Sample:
    """One sample of an application at a size, and the model that takes it; both are seeded, so that ranks agree."""

    name: str
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        self.application = find_application(self.name)
        self.config = resolve(self.application, "mlperf", overrides=self.settings)
        self.task = self.application.module("task").build_task(self.config)
        torch.manual_seed(1)
        data = self.config.data
        if self.name == "cosmoflow":
            size = (data.sample_size,) * 3
            inputs, self.targets = torch.rand(1, data.channels, *size), torch.rand(1, 4)
        else:
            size = (data.height, data.width)
            inputs, self.targets = torch.rand(1, len(data.channels), *size), torch.randint(3, (1, *size))
        self.inputs = laid_out(inputs)

    def model(self, mesh: Mesh | None = None) -> nn.Module:
        """Return the model, split over ``mesh`` if given."""
        torch.manual_seed(0)
        model: nn.Module = self.application.module("model").build_model(self.config)
        for parameter in model.parameters():
            if parameter.dim() in LAYOUTS:
                parameter.data = laid_out(parameter.data)
        if mesh is not None and mesh.axes:
            self.application.module("parallel").parallelize(model, self.config, mesh)
        return model

    def loss(self, mesh: Mesh | None = None) -> Callable[[nn.Module], Tensor]:
        """Return a function for the model's loss on this rank's part of the sample, in the configured precision."""
        split = mesh is not None and bool(mesh.axes)
        part = laid_out(own_part(self.inputs, mesh.axes)) if mesh is not None and split else self.inputs
        ranks = mesh.shape.spatial_size if mesh is not None and split else 1
        mixed = self.config.train.precision == "bf16-mixed"

        def loss(model: nn.Module) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                model_loss: Tensor = self.task.loss(model(part), self.targets)
            return model_loss / ranks

        return loss


def laid_out(tensor: Tensor) -> Tensor:
    """Return the tensor in channels-last layout."""
    return tensor.contiguous(memory_format=LAYOUTS[tensor.dim()])


def kept_bytes(model: nn.Module, forward: Callable[[nn.Module], Tensor]) -> int:
    """Bytes that a forward pass keeps for the backward pass, excluding parameters."""
    parameter_storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    bytes_by_storage: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameter_storages:
            bytes_by_storage[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = forward(model)
    del loss
    return sum(bytes_by_storage.values())


def start_ranks(count: int, *words: str) -> None:
    """Run this script as ``count`` ranks of one thread each; exit this process if one fails."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, sys.argv[0], *(words or sys.argv[1:])]
    ranks = [subprocess.Popen(command, env=environment) for environment in rank_environments(count, environ)]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit(max(codes))
