"""Ranks that train a model sharded by FSDP2 and the same model whole; rank 0 prints how far they come apart."""

from __future__ import annotations

import copy
import json
import os

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from hpcbench.config.optimizers import OPTIMIZERS
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.clip import clip_gradients
from hpcbench.optim.layerwise import LayerwiseOptimizer
from hpcbench.optim.registry import create_optimizer, parameter_kinds
from hpcbench.parallel.group import connect
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

STEPS = 5


def make_model() -> nn.Module:
    """Layers of 3, 5 and 7 rows, which no number of ranks divides, and a bias that some ranks have nothing of.

    No bias comes before the normalisation: its gradient is rounding alone, which Adam's kind of update blows up.
    """
    torch.manual_seed(0)
    layers = (
        nn.Conv1d(2, 5, 3, padding=1, bias=False),
        nn.BatchNorm1d(5),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(20, 7),
        nn.Linear(7, 3),
    )
    return nn.Sequential(*layers).double()


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def difference(name: str, mesh: DeviceMesh) -> dict[str, float]:
    """Largest difference of a weight and of a trust ratio after some steps on the same samples on all ranks."""
    plain = make_model()
    sharded = copy.deepcopy(plain)
    fully_shard(sharded, mesh=mesh)
    rate = 10.0 if name in ("lars", "larc") else 0.05  # far above the rate of a layer, else larc follows it
    options = {} if OPTIMIZERS[name].options["max_grad_norm"] else {"max_grad_norm": 0.3}
    config = OptimConfig(name=name, lr=rate, weight_decay=0.1, **options)
    optimizers = []
    for model in (plain, sharded):
        groups = [{"params": list(model.parameters())}]
        optimizers.append(create_optimizer(config, groups, "cpu", kinds=parameter_kinds(model)))
    clipped = 0
    for step in range(STEPS):
        samples = torch.linspace(-3, 5 + step, 6 * 2 * 4, dtype=torch.float64).view(6, 2, 4).sin()
        norms = []
        for model, optimizer in zip((plain, sharded), optimizers, strict=True):
            optimizer.zero_grad()
            (model(samples).square().sum()).backward()
            largest = OPTIMIZERS[name].options["max_grad_norm"] or options["max_grad_norm"]
            norms.append(clip_gradients(model.parameters(), float("inf")))
            if isinstance(optimizer, LayerwiseOptimizer):
                optimizer.record = True
            else:
                clip_gradients(model.parameters(), largest)
            optimizer.step()
        clipped += int(norms[0] > largest)
    pairs = zip(plain.parameters(), sharded.parameters(), strict=True)
    found = {
        "weights": max(float((one - whole(other)).detach().abs().max()) for one, other in pairs),
        "clipped": float(clipped),
    }
    if isinstance(optimizers[0], LayerwiseOptimizer):
        ratios = [torch.cat([ratio for _, ratio in optimizer.recorded]) for optimizer in optimizers]  # type: ignore[attr-defined]
        found["ratios"] = float((ratios[0] - ratios[1]).abs().max())
        found["adapted"] = float((ratios[0] != 1).sum())
    return found


def main() -> None:
    group = connect(detect(os.environ))
    size = group.world_size
    meshes = {"flat": init_device_mesh("cpu", (size,))}
    if size == 4:
        meshes["hybrid"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    found = {f"{name} {kind}": difference(name, mesh) for name in OPTIMIZERS for kind, mesh in meshes.items()}
    everyone = group.all_gather_object(found)
    if group.is_main:
        print(json.dumps(everyone))
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
