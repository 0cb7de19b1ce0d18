"""Three ranks talk, reduce gradients and disagree; rank 0 prints what came of it as one JSON line."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch import nn

from hpcbench.parallel.batchnorm import average_statistics
from hpcbench.parallel.gradients import GradientReducer, broadcast_state
from hpcbench.parallel.group import Group, connect
from staging.errors import InputError
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

DATA = torch.linspace(-1, 1, 7 * 12, dtype=torch.float64).view(7, 1, 3, 4).sin()
"""Seven samples: ranks 0, 1 and 2 hold 3, 3 and 1 of them."""
WIRES = {"gradient": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def make_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(48, 8), nn.Linear(8, 2))
    return model.double().to(memory_format=torch.channels_last)


def loss_sum(model: nn.Module, samples: torch.Tensor) -> torch.Tensor:
    """Loss of the samples as their share of the mean over all seven."""
    return model(samples).square().mean(1).sum() / len(DATA)


def gradients(model: nn.Module) -> list[float]:
    return [value for p in model.parameters() for value in p.grad.flatten().tolist()]  # type: ignore[union-attr]


def reduce_steps(group: Group) -> dict[str, Any]:
    model = make_model(seed=group.rank)
    broadcast_state(model, group)
    reducer = GradientReducer(model.parameters(), group, bucket_bytes=200)
    mine = DATA[3 * group.rank : 3 * group.rank + 3]
    found: dict[str, Any] = {}
    for step in range(2):
        before = reducer.collectives
        for micro in range(3):
            reducer.enabled = micro == 2
            # The last rank has one sample only, so nothing at all in the last micro-batches.
            if len(mine[micro : micro + 1]):
                loss_sum(model, mine[micro : micro + 1]).backward()
            if micro < 2:
                found[f"sent in micro-batch {micro} of step {step}"] = reducer.collectives - before
        found[f"sent during the backward pass of step {step}"] = reducer.collectives - before
        reducer.finish()
        found[f"sent in step {step}"] = reducer.collectives - before
        found[f"gradients of step {step}"] = gradients(model)
        conv, weight = model[0].weight, model[3].weight
        found["strides"] = [conv.grad.stride() == conv.stride(), weight.grad.stride() == weight.stride()]
        for parameter in model.parameters():
            # Step 0 goes on with zeroed views, step 1 with new tensors.
            parameter.grad = None if step else parameter.grad.zero_()
    reducer.close()
    loss_sum(model, mine).backward()
    found["sent after close"] = reducer.collectives - before - found["sent in step 1"]
    return found


def unused_parameter(group: Group) -> list[float]:
    used, unused = (nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
    reducer = GradientReducer([used, unused], group, bucket_bytes=8)
    reducer.enabled = True
    ((group.rank + 1) * used).sum().backward()
    reducer.finish()
    return [*used.grad.tolist(), *unused.grad.tolist()]  # type: ignore[union-attr]


def moved_without_a_gradient(group: Group) -> list[float]:
    """Two parameters after two steps with weight decay, of which one never gets a gradient."""
    used, unused = (nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    reducer = GradientReducer([used, unused], group, bucket_bytes=8)
    optimizer = torch.optim.SGD([used, unused], lr=0.1, weight_decay=0.5)
    for _ in range(2):
        (used / group.world_size).sum().backward()
        reducer.finish()
        optimizer.step()
        optimizer.zero_grad()
    return [used.item(), unused.item()]


def rounded_sum(group: Group, wire_dtype: torch.dtype | None) -> tuple[list[float], str]:
    """The gradient of a parameter that is 1 + 2^-10 on each rank, summed as ``wire_dtype``, and its own dtype."""
    parameter = nn.Parameter(torch.zeros(2))
    reducer = GradientReducer([parameter], group, bucket_bytes=8, wire_dtype=wire_dtype)
    reducer.enabled = True
    ((1 + 2**-10) * parameter).sum().backward()
    reducer.finish()
    assert parameter.grad is not None
    return parameter.grad.tolist(), str(parameter.grad.dtype)


def sent_before_the_first_layer(group: Group, backward: bool) -> int:
    """Buckets that are on their way when the gradient of the first of three layers comes last."""
    layers = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3)))
    reducer = GradientReducer(layers.parameters(), group, bucket_bytes=8, backward=backward)
    reducer.enabled = True
    sent: list[int] = []
    layers[0].weight.register_hook(lambda _: sent.append(reducer.collectives))
    layers(torch.ones(1, 2)).sum().backward()
    reducer.finish()
    return sent[0]


def batchnorm(group: Group) -> dict[str, Any]:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Linear(1, 1), nn.BatchNorm1d(2))
    for position, module in enumerate((model[0], model[2])):
        module.running_mean.fill_(group.rank + position)
        module.running_var.fill_(10.0 ** (group.rank + position))
        module.num_batches_tracked.fill_(group.rank)
    average_statistics(model, group)
    return {name: tensor.tolist() for name, tensor in model.named_buffers()}


def disagreement(group: Group) -> str:
    group.agree("the version", "1.0")
    try:
        group.agree("the seed", 7 if group.rank < 2 else 8)
    except InputError as error:
        return str(error)
    return ""


def main() -> None:
    torch.set_num_threads(1)
    group = connect(detect(os.environ), timeout_s=60)
    rows = torch.full((group.rank, 2), float(group.rank))
    found: dict[str, Any] = {
        "launch": vars(group.launch),
        "rows": group.all_gather_rows(rows).tolist(),
        "sum": group.all_reduce_sum(torch.tensor([1.0, float(group.rank)])).tolist(),
        "max": group.max(group.rank * 1.5),
        "object": group.broadcast_object({"rank": group.rank}, source=1),
        "reducer": reduce_steps(group),
        "unused": unused_parameter(group),
        "moved": moved_without_a_gradient(group),
        "rounded": {name: rounded_sum(group, dtype) for name, dtype in WIRES.items()},
        "sent": [sent_before_the_first_layer(group, backward) for backward in (True, False)],
        "batchnorm": batchnorm(group),
        "disagreement": disagreement(group),
    }
    everyone = group.all_gather_object(found)
    if group.rank == 0:
        print(json.dumps(everyone), flush=True)
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
