"""Compiles, captures and selects kernels on made-up samples before the clock starts, and leaves no trace.

The rules allow this, since no data of the benchmark are touched. Afterwards model, optimizer, statistics and random
numbers are what they were.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.loader import Loader, stack
from hpcbench.measure.memory import reset_peak_memory
from hpcbench.optim.layerwise import LayerwiseOptimizer
from hpcbench.optim.registry import create_optimizer, parameter_kinds
from hpcbench.parallel.group import Group
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.train.context import RunContext
from hpcbench.train.cuda_graph import WARMUP_STEPS
from hpcbench.train.data_path import DataPath
from hpcbench.train.dropout import set_sample_keys
from hpcbench.train.randomness import sample_keys
from hpcbench.train.task import Task
from hpcbench.train.training_step import TrainingStep


def is_due(config: RunConfig, device: torch.device) -> bool:
    """Whether the first steps would do more than later ones: compile, capture, or try kernels."""
    return config.train.compile or config.train.cuda_graph or device.type != "cpu"


def compile_loops(optimizer: Any) -> float | None:
    """Compile loops that the optimizer's first step would compile, on any device; the seconds, ``None`` if none are."""
    started, inner = time.perf_counter(), optimizer.optimizer
    if isinstance(inner, LayerwiseOptimizer) and inner.compile_loops():
        return time.perf_counter() - started
    return None


def warm_up(run: RunContext, data: DataPath, step: TrainingStep) -> float | None:
    """Make passes of every batch size of the run; collective if a pass is. Returns the seconds that it took.

    ``None`` if the application does not give the shapes of a batch (its module ``shapes``): nothing is done then,
    and the first steps compile within the scored time.
    """
    if not run.application.has("shapes"):
        return None
    started = time.perf_counter()
    # Passes alone change neither parameters nor the optimizer's state.
    changed = [*step.model.buffers(), *(step.model.parameters() if step.whole_step is not None else ())]
    before = [tensor.detach().clone() for tensor in changed]
    state = OptimizerState(step.optimizer) if step.whole_step is not None else None
    precision = run.precision.state_dict()
    devices = [run.device] if run.device.type != "cpu" else []
    with (
        run.phases.phase("init"),
        torch.random.fork_rng(devices=devices, device_type=run.device.type if devices else "cuda"),
    ):
        # Sharded gradients that are not sent would stay where nothing drops them.
        step.reducer.enabled = run.config.parallel.shard_states
        for size in sizes_of_all(run.group, data.batch_sizes(), empty=step.waits_in_pass):
            for _ in range(WARMUP_STEPS + 1):
                with run.phases.steps():  # code is compiled either with or without recorded messages
                    training_pass(run, step, size, data.training_loader)
        for size in sizes_of_all(run.group, data.evaluation_batch_sizes(), empty=run.config.parallel.shard_states):
            evaluation_pass(run, step, size, data.validation_loader)
        if step.whole_step is None:
            try_optimizer(run.config, run.task, step.model, run.device)
    with torch.no_grad():
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
    if state is not None:
        state.put_back()
    run.precision.load_state_dict(precision)
    step.optimizer.zero_grad(set_to_none=step.graph is None)
    if run.device.type != "cpu":
        torch.accelerator.synchronize(run.device)
    run.communication.discard_warm_up()
    if not step.replays:  # torch counts the memory of replayed passes only before they are captured
        reset_peak_memory(run.device)
    return time.perf_counter() - started


def sizes_of_all(group: Group, own_sizes: set[int], *, empty: bool) -> list[int]:
    """Batch sizes of all ranks, largest first, so that all make as many passes; 0 only if they make ``empty`` ones.

    Collective: passes may wait for those of other ranks, whose last batch may have another size.
    """
    sizes = set().union(*group.all_gather_object(own_sizes))
    return sorted(sizes if empty else sizes - {0}, reverse=True)


def training_pass(run: RunContext, step: TrainingStep, samples: int, loader: Loader) -> None:
    """Forward and backward pass of a made-up batch; with the optimizer's step, if one graph holds both."""
    inputs, target = made_up(run, samples, loader)
    set_sample_keys(step.model, sample_keys(run.seed, 0, torch.arange(samples)))
    step.weight.fill_(1)
    if step.whole_step is not None:
        step.whole_step(run.config.optim.lr, inputs, target)
        return
    (step.graph or step.forward_backward)(inputs, target)
    step.optimizer.zero_grad(set_to_none=step.graph is None)


class OptimizerState:
    """A copy of the tensors that an optimizer keeps; those made later started at zero, and stay in place."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.before = {id(tensor): tensor.clone() for tensor in self.tensors()}

    def tensors(self) -> Iterator[Tensor]:
        """Momenta, moments and step counts of all parameters."""
        states = self.optimizer.state.values()
        return (value for state in states for value in state.values() if isinstance(value, Tensor))

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the tensors in the same memory, since a captured step uses no other."""
        for tensor in self.tensors():
            if id(tensor) in self.before:
                tensor.copy_(self.before[id(tensor)])
            else:
                tensor.zero_()


@torch.no_grad()
def evaluation_pass(run: RunContext, step: TrainingStep, samples: int, loader: Loader) -> None:
    """Forward pass of a made-up batch as in evaluation."""
    inputs, target = made_up(run, samples, loader)
    step.model.eval()
    step.forward(inputs, target)
    step.model.train()


def made_up(run: RunContext, samples: int, loader: Loader) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch as model and loss take them: uniform or zeros.

    Inputs are this rank's part, cut out of whole samples if ``loader`` reads these: compiled code is for one layout.
    """
    inputs, goal = whole_batch(run.application, run.config, samples, run.device)
    part = own_part(run.precision.as_input(inputs), run.mesh.axes)
    return (as_read(part) if loader.parts else part), goal


def whole_batch(
    application: Application, config: RunConfig, samples: int, device: torch.device
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Inputs and targets of whole made-up samples, in the layout that the application says they are read in."""
    inputs, target = application.module("shapes").batch_shapes(config, samples)
    filled = as_read(torch.zeros_like(inputs, device=device))
    if filled.is_floating_point():
        filled.uniform_()
    return filled, torch.zeros(target.shape, dtype=target.dtype, device=device)


def as_read(batch: Tensor) -> Tensor:
    """``batch`` in memory as a loader has it: compiled code is for one layout."""
    return stack(list(batch)) if len(batch) else batch


def try_optimizer(config: RunConfig, task: Task, model: nn.Module, device: torch.device) -> None:
    """Take a step of an optimizer like the run's, so that its kernels are compiled.

    Kernels are compiled for the options and the number of the parameters that they work on, so there are as many as
    in the run, of one element each.
    """
    if config.parallel.shard_states:
        return
    groups, kinds = task.parameter_groups(model), parameter_kinds(model)
    copies = {
        parameter: nn.Parameter(parameter.detach().new_zeros((1,) * parameter.dim()))
        for parameter in model.parameters()
    }
    for copy in copies.values():
        copy.grad = torch.zeros_like(copy)
    known = {copies[parameter]: kind for parameter, kind in kinds.items()}
    parts = [{**group, "params": [copies[parameter] for parameter in group["params"]]} for group in groups]
    create_optimizer(config.optim, parts, device, kinds=known).step()
