"""Ranks that train an application's model on a spatial mesh, the first of them the same model on whole ones, too.

Arguments: application, split, and the kernel size, or 0, ``float32`` for rounding alone, or ``group``
for batch-norm statistics of two places along ``data``. Rank 0 prints how far they come apart, for every rank and
optimizer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.clip import clip_gradients
from hpcbench.optim.registry import clipping_outside, create_optimizer, parameter_kinds
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.mesh import Mesh, make_mesh
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.train.dropout import set_sample_keys
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

STEPS, SOME_STEPS, FEW_STEPS, MANY = 20, 6, 4, 8
"""Many ranks, which share few cores, take few steps. DeepCAM, whose steps take longest, takes 20 on a mesh of two axes,
and some on others."""
LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
LOCAL = 2
"""Samples of a place along ``data``."""


def build(application: Any, config: Any, dtype: torch.dtype, layout: bool) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = application.module("model").build_model(config)
    for parameter in model.parameters() if layout else ():
        if parameter.dim() in LAYOUTS:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[parameter.dim()])
    return model.to(dtype)


def samples(config: Any, number: int, step: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one step, smooth and noisy, as the model and the loss take them."""
    generator = torch.Generator().manual_seed(100 + step)
    if hasattr(config.data, "sample_size"):
        size = (config.data.sample_size,) * 3
        inputs = torch.randn(number, config.data.channels, *size, generator=generator, dtype=torch.float64)
        return inputs, torch.rand(number, 4, generator=generator, dtype=torch.float64) * 2 - 1
    size = (config.data.height, config.data.width)
    inputs = torch.randn(number, len(config.data.channels), *size, generator=generator, dtype=torch.float64)
    return inputs, (inputs[:, 0] > 1).long() + (inputs[:, 1] > 1.5).long().clamp(max=1)


def gradients(model: nn.Module) -> list[Tensor]:
    """Of all parameters."""
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert len(found) == len(list(model.parameters()))
    return found


def apart(one: Tensor, other: Tensor) -> float:
    """Largest difference over the largest number."""
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-3))


class Trainer:
    """A model with its optimizer; ``mesh`` of ``None`` trains on whole samples, one place of ``data`` after another."""

    def __init__(
        self, application: Any, config: Any, name: str, mesh: Mesh | None, dtype: torch.dtype = torch.float64,
        layout: bool = False, together: int = 1,
    ) -> None:  # fmt: skip
        self.task = application.module("task").build_task(config)
        self.model, self.mesh = build(application, config, dtype, layout), mesh
        self.dtype, self.layout, self.together = dtype, layout, together
        kinds = parameter_kinds(self.model)
        groups = self.task.parameter_groups(self.model)
        if mesh is not None and mesh.axes:
            application.module("parallel").parallelize(self.model, config, mesh)
        rate = {"sgd": 0.02, "nvlamb": 0.01}[name]
        optim = OptimConfig(name=name, lr=rate, weight_decay=0.01, max_grad_norm=0.5)
        self.optimizer = create_optimizer(optim, groups, "cpu", kinds=kinds)
        self.clipping = clipping_outside(optim)

    def output(self, inputs: Tensor, place: int) -> Tensor:
        set_sample_keys(self.model, torch.arange(len(inputs)) + place * LOCAL)
        inputs = inputs.to(self.dtype)
        if self.mesh is not None:
            inputs = own_part(inputs, self.mesh.axes)
        if self.layout:
            inputs = inputs.contiguous(memory_format=LAYOUTS[inputs.dim()])
        result: Tensor = self.model(inputs)
        return result

    def backward(self, inputs: Tensor, targets: Tensor, places: int) -> tuple[Tensor, float]:
        """Gradients of the mean loss over all samples, before they are added over ranks; output and loss here."""
        self.optimizer.zero_grad()
        own = range(0, places, self.together) if self.mesh is None else [self.mesh.data_rank]
        count = self.together if self.mesh is None else 1
        share = 1 if self.mesh is None else self.mesh.shape.spatial_size
        total, outputs = 0.0, []
        for place in own:
            part = slice(place * LOCAL, (place + count) * LOCAL)
            output = self.output(inputs[part], place)
            loss = self.task.loss(output, targets[part]) * count / places
            (loss / share).backward()
            total += float(loss.detach())
            outputs.append(output.detach())
        return torch.cat(outputs), total

    def step(self) -> None:
        if self.clipping:
            clip_gradients(self.model.parameters(), self.clipping)
        self.optimizer.step()


def difference(
    application: Any, config: Any, optimizer: str, mesh: Mesh, group: Group, together: int
) -> dict[str, float]:
    """Largest differences, as rank 0 sees them, in the first step and over all steps; and between ranks in the end."""
    places, ranks = mesh.shape.data, mesh.shape.spatial_size
    split = Trainer(application, config, optimizer, mesh)
    whole = Trainer(application, config, optimizer, None, together=together) if group.is_main else None
    reducer = GradientReducer(split.model.parameters(), group, 2**20)
    found = {"loss": 0.0}
    all_steps = SOME_STEPS if application.name == "deepcam" and len(mesh.axes) < 2 else STEPS
    for step in range(all_steps if group.world_size < MANY else FEW_STEPS):
        inputs, targets = samples(config, LOCAL * places, step)
        reducer.enabled = True
        output, loss = split.backward(inputs, targets, places)
        reducer.finish()
        outputs = group.all_gather_rows(output if mesh.spatial_rank == 0 else output[:0])
        total = sum(group.all_gather_object(loss)) / ranks
        if whole is not None:
            expected, mean = whole.backward(inputs, targets, places)
            found["loss"] = max(found["loss"], abs(total - mean) / mean)
            if step == 0:
                found["outputs"] = apart(outputs, expected)
                found["gradients"] = worst(gradients(split.model), gradients(whole.model))
            whole.step()
        split.step()
    weights = [parameter.detach() for parameter in split.model.parameters()]
    if whole is not None:
        found["weights"] = worst(weights, [parameter.detach() for parameter in whole.model.parameters()])
    found["between ranks"] = max(apart(weight, group.broadcast(weight.contiguous().clone())) for weight in weights)
    reducer.close()
    return found


def rounding(application: Any, config: Any, mesh: Mesh, group: Group) -> dict[str, float]:
    """In float32, how far split is from whole, and the memory layout of a whole model from another one."""
    places, ranks = mesh.shape.data, mesh.shape.spatial_size
    split = Trainer(application, config, "sgd", mesh, torch.float32, layout=True)
    reducer = GradientReducer(split.model.parameters(), group, 2**20)
    inputs, targets = samples(config, LOCAL * places, 0)
    reducer.enabled = True
    _, loss = split.backward(inputs, targets, places)
    reducer.finish()
    total = sum(group.all_gather_object(loss)) / ranks
    if not group.is_main:
        return {}
    whole, other = (Trainer(application, config, "sgd", None, torch.float32, layout=each) for each in (True, False))
    _, mean = whole.backward(inputs, targets, places)
    other.backward(inputs, targets, places)
    return {
        "loss": abs(total - mean) / mean,
        "gradients": worst(gradients(split.model), gradients(whole.model)),
        "layout": worst(gradients(other.model), gradients(whole.model)),
    }


def worst(ours: list[Tensor], others: list[Tensor]) -> float:
    """The largest difference between tensors of two lists."""
    return max(apart(*pair) for pair in zip(ours, others, strict=True))


def main() -> None:
    name, spatial, kernel = sys.argv[1:]
    group = connect(detect(os.environ), "cpu")
    torch.set_num_threads(1)
    application = find_application(name)
    settings: dict[str, Any] = {"data.height": 64, "data.width": 32}
    if name == "cosmoflow":
        settings = {"model.dropout": 0.3, "model.kernel_size": 2 if kernel == "2" else 3}
        settings["model.pooling"] = "mean" if kernel == "mean" else "max"
    config = resolve(application, "smoke", overrides=settings)
    together = 2 if kernel == "group" else 1
    mesh = make_mesh(group, mesh_shape(group.world_size, spatial), together)
    if kernel == "float32":
        found = {"rounding": rounding(application, config, mesh, group)}
    else:
        found = {each: difference(application, config, each, mesh, group, together) for each in ("sgd", "nvlamb")}
    everyone = group.all_gather_object(found)
    if group.is_main:
        print(json.dumps(everyone))
    group.close()


if __name__ == "__main__":
    main()
    leave_together(0)
