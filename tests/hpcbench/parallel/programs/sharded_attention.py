"""Two ranks shard a model with attention and containers; rank 0 prints what each found as one JSON line."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.sharded import gathered, shard_model, units
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together


class Attentive(nn.Module):
    """Layers in containers that are never called, and attention that takes its projection's parameters itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.small = nn.ModuleDict({name: nn.Linear(32, 32) for name in "abc"})

    def forward(self, x: Tensor) -> Tensor:
        """Of samples (n, 5, 32)."""
        for layer in self.layers:
            x = layer(x)
        x = self.attention(x, x, x)[0]
        for layer in self.small.values():
            x = layer(x)
        return x


def made() -> Attentive:
    """The same on every rank."""
    torch.manual_seed(1)
    return Attentive().double()


def compared(group: Group, at_least: int) -> dict[str, Any]:
    """The kinds of the units, and how far output and gradients are from those of a whole model."""
    torch.manual_seed(2)
    x = torch.randn(4, 5, 32, dtype=torch.float64)
    whole, sharded = made(), made()
    kinds = [type(unit).__name__ for unit in units(sharded, at_least)]
    shard_model(sharded, group, MeshShape(2), at_least)
    whole(x).square().sum().backward()
    sharded(x[2 * group.rank : 2 * group.rank + 2]).square().sum().backward()
    pairs = zip(whole.parameters(), sharded.parameters(), strict=True)
    gradients = max(float((gathered(mine.grad) - own.grad).abs().max()) for own, mine in pairs)
    with torch.no_grad():
        outputs = float((sharded.eval()(x) - whole.eval()(x)).abs().max())
    return {"units": kinds, "gradients": gradients, "outputs": outputs}


def gradient_of_an_unused_layer(group: Group) -> list[float]:
    """Of a sharded model that has a layer too many, after its backward pass and ``finish``."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    model.forward = model[0].forward  # type: ignore[method-assign]
    gradients = shard_model(model, group, MeshShape(2))
    gradients.enabled = True
    model(torch.ones(1, 2)).sum().backward()
    gradients.finish()
    missing = model[1].weight.grad
    return [] if missing is None else gathered(missing).flatten().tolist()


def main() -> None:
    torch.set_num_threads(1)
    group = connect(detect(os.environ), timeout_s=60)
    found: dict[str, Any] = {str(size): compared(group, size) for size in (1000, 3000)}
    found["unused"] = gradient_of_an_unused_layer(group)
    everyone = group.all_gather_object(found)
    if group.rank == 0:
        print(json.dumps(everyone), flush=True)
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
