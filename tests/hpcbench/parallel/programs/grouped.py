"""Four ranks normalize in groups of two; rank 0 prints what each computed as one JSON line."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.parallel.batchnorm_group import share_batch_norm, shares_batch_norm
from hpcbench.parallel.group import Group, connect
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

PARTS = (((0, 1), (1, 4), (4, 6), (6, 8)), ((0, 3), (3, 3), (8, 8), (8, 8)))
"""Rows of each rank, in two steps: uneven, then with nothing for one of a group and for a whole group."""


def samples(shape: tuple[int, ...], offset: float = 1e5) -> Tensor:
    """Eight samples far from zero, which naive sums of squares do not survive."""
    torch.manual_seed(3)
    return torch.randn(8, *shape, dtype=torch.float64) + offset


def make_model(kind: str) -> tuple[nn.Module, Tensor]:
    """A model with batch norms, and its input."""
    torch.manual_seed(1)
    if kind == "vectors":
        return nn.Sequential(nn.BatchNorm1d(5, momentum=None), nn.Tanh(), nn.Linear(5, 4)).double(), samples((5,))
    if kind == "volumes":
        bare = nn.BatchNorm3d(2, affine=False), nn.BatchNorm3d(2, track_running_stats=False)
        return nn.Sequential(*bare, nn.Tanh()).double(), samples((2, 2, 3, 2))
    inner = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4, momentum=0.3), nn.Tanh())
    model = nn.Sequential(nn.BatchNorm2d(3), inner, nn.Conv2d(4, 2, 1)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.to(memory_format=torch.channels_last), samples((3, 4, 5)).to(memory_format=torch.channels_last)


def train_step(model: nn.Module, x: Tensor, first: int, last: int) -> dict[str, Any]:
    """Output and gradients of rows ``first`` to ``last``, and the statistics afterwards."""
    model.zero_grad()
    own = x[first:last].clone().requires_grad_()
    output = model(own)
    # Not a plain sum, of which batch norm has no gradient.
    weights = torch.linspace(-1, 2, 8 * output[:1].numel() if len(own) else 0, dtype=torch.float64).cos()
    (output * weights.view(-1, *output.shape[1:])[first:last] if len(own) else output).sum().backward()
    return {
        "output": output.tolist(),
        "input": None if own.grad is None else own.grad.tolist(),
        "parameters": {name: p.grad.tolist() for name, p in model.named_parameters() if p.grad is not None},
        "buffers": {name: buffer.tolist() for name, buffer in model.named_buffers()},
    }


def run_case(group: Group, kind: str) -> dict[str, Any]:
    model, x = make_model(kind)
    names, held = list(model.state_dict()), [id(p) for p in model.parameters()]
    share_batch_norm(model, group, 2, timeout_s=60)
    found: dict[str, Any] = {
        "kept": names == list(model.state_dict()) and held == [id(p) for p in model.parameters()],
        "shares": shares_batch_norm(model),
        "steps": [train_step(model, x, *parts[group.rank]) for parts in PARTS],
    }
    with torch.no_grad():
        found["evaluated"] = model.eval()(x[group.rank : group.rank + 1]).tolist()
    return found


def mixed(group: Group) -> dict[str, Any]:
    """A bfloat16 batch through float32 layers, as under autocast."""
    layer = nn.Sequential(nn.BatchNorm2d(3))
    share_batch_norm(layer, group, 2, timeout_s=60)
    x = samples((3, 4, 5), offset=0).bfloat16()[2 * group.rank : 2 * group.rank + 2].requires_grad_()
    output = layer(x)
    output.float().square().mean().backward()
    assert x.grad is not None
    return {"types": [str(output.dtype), str(x.grad.dtype)], "output": output.tolist(),
            "weight": layer[0].weight.grad.tolist()}  # type: ignore[union-attr]  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    group = connect(detect(os.environ), timeout_s=60)
    found = {kind: run_case(group, kind) for kind in ("vectors", "images", "volumes")}
    everyone = group.all_gather_object({**found, "mixed": mixed(group)})
    if group.rank == 0:
        print(json.dumps(everyone), flush=True)
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
