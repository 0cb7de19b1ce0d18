"""Optimizer steps of an application on made-up samples: how long they take on one rank, on some, and on all.

A step is what ``TrainingStep`` does: passes over its micro-batches, the sum of gradients during the last one, and the
update. It has no input and no observers, and is not captured as a graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpcbench.application import Application
from hpcbench.characterisation.kernel_times import kernel_times
from hpcbench.characterisation.model import ProfiledOperation, StepTimes
from hpcbench.characterisation.timing import synchronizer
from hpcbench.config.schema import RunConfig
from hpcbench.measure.communication import Communication
from hpcbench.measure.memory import peak_memory_bytes, reset_peak_memory
from hpcbench.measure.phases import Phases
from hpcbench.measure.shared_clock import SharedClock
from hpcbench.parallel.compiled import compiled
from hpcbench.parallel.exposed import UNRECORDED
from hpcbench.parallel.gradients import GradientReducer, broadcast_state
from hpcbench.parallel.group import Group, Work
from hpcbench.parallel.mesh import Mesh, make_mesh
from hpcbench.parallel.mesh_shape import MeshShape, spatial_sizes
from hpcbench.parallel.sharded import ShardedGradients
from hpcbench.parallel.simulated_ranks import data_ranks
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.train.build import build_model, build_optimizer
from hpcbench.train.distribute import distribute
from hpcbench.train.dropout import set_sample_keys
from hpcbench.train.randomness import sample_keys
from hpcbench.train.ranks import Ranks
from hpcbench.train.task import Task
from hpcbench.train.warm_up import whole_batch
from staging.phase_timer import PhaseTimer

KIND_OF_PROFILE = {
    "normalisation": "batch norm", "copy and layout": "copy", "loss and sums": "reduction",
}  # fmt: skip
"""Kinds of the profiler's kernels that the counts name differently, each with its name there."""
LEAST_STEPS, MOST_STEPS = 3, 30
PROFILED_STEPS = 2


@dataclass
class Step:
    """A model and what trains it; calling it makes an optimizer step."""

    config: RunConfig
    ranks: Ranks
    model: nn.Module
    reducer: GradientReducer | ShardedGradients
    optimizer: Any
    task: Task
    batch: tuple[Tensor, Tensor]
    phases: Phases

    def __call__(self) -> None:
        train, parallel = self.config.train, self.config.parallel
        inputs, target = self.batch
        for number in range(train.accumulation):
            self.reducer.enabled = number == train.accumulation - 1 and parallel.overlap
            with self.phases.phase("compute"):
                with self.ranks.precision.autocast():
                    output = self.task.forward(self.model, inputs, target)
                loss = self.task.loss(output.to(self.ranks.precision.dtype), target)
                self.ranks.precision.backward(loss)
        with self.phases.phase("compute"):
            self.reducer.finish()
        with self.phases.phase("optimizer"), self.reducer.record_norms():
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class FirstRanks(Group):
    """The first ranks of a group, which sum their gradients while the others wait."""

    def __init__(self, group: Group, size: int, processes: Any) -> None:
        super().__init__(replace(group.launch, world_size=size), group.device, group.store)
        self.processes = processes

    def all_reduce_sum_async(self, tensor: Tensor) -> Work | None:
        """See ``Group``."""
        return None if self.world_size == 1 else dist.all_reduce(tensor, group=self.processes, async_op=True)


@dataclass(frozen=True)
class Measured:
    """What was measured in the steps."""

    steps: tuple[StepTimes, ...]
    exposed_s: dict[str, float]
    """Seconds of a step that wait for messages of each kind, on the slowest rank; without waiting for slower ranks."""
    profile: dict[str, float]
    longest: tuple[ProfiledOperation, ...]
    optimizer_s: float
    peak_bytes: int


def grows_by_ranks(config: RunConfig) -> bool:
    """Whether steps are also timed on fewer ranks than all: not if ranks share samples or have parts of the states."""
    return prod(spatial_sizes(config.parallel.spatial)) == 1 and not config.parallel.shard_states


def measure_steps(
    application: Application, config: RunConfig, ranks: Ranks, shape: MeshShape, flop: float, roof: float | None,
    budget_s: float, say: Callable[[str], None],
) -> Measured:  # fmt: skip
    """Time steps on 1, 2, 4, ... and all ranks, each for about ``budget_s``; collective.

    ``flop`` is the operations of products in a rank's step, and ``roof`` the most of them that it reaches per second.
    """
    group = ranks.group
    times = []
    if grows_by_ranks(config):
        for size in growing(group.world_size):
            say(f"steps on {size} of {group.world_size} ranks")
            step = first_step(application, config, ranks, size)
            times.append(timed_steps(step, group, size, config, flop, roof, budget_s))
    phases = Phases(PhaseTimer(), ranks.device)
    communication = Communication(phases, SharedClock(group))
    say(f"steps on {group.world_size} of {group.world_size} ranks")
    step = full_step(application, config, ranks, shape, phases, communication)
    assert step is not None
    step()
    communication.settle()
    before = dict(communication.transfer_s)
    reset_peak_memory(ranks.device)
    made = 0

    def counted() -> None:
        nonlocal made
        made += 1
        step()

    times.append(timed_steps(counted, group, group.world_size, config, flop, roof, budget_s))
    communication.settle()
    exposed = {kind: (seconds - before[kind]) / made for kind, seconds in communication.transfer_s.items()}
    peak = max(group.all_gather_object(peak_memory_bytes(ranks.device)))
    say("profile")
    profile, longest = profiled(step, ranks.device) if group.rank == 0 else silent_steps(step)
    return Measured(
        tuple(times), {kind: group.max(seconds) for kind, seconds in exposed.items()},
        group.broadcast_object(profile), group.broadcast_object(longest), group.max(optimizer_seconds(step)), peak,
    )  # fmt: skip


def growing(ranks: int) -> list[int]:
    """Powers of two below ``ranks``."""
    return [2**power for power in range(ranks.bit_length()) if 2**power < ranks]


def first_step(application: Application, config: RunConfig, ranks: Ranks, size: int) -> Step | None:
    """A step of the first ``size`` ranks; ``None`` on the others. Collective."""
    processes = dist.new_group(list(range(size))) if size > 1 else None
    if ranks.launch.rank >= size:
        return None
    few = FirstRanks(ranks.group, size, processes)
    model = build_model(application, config, ranks.device, 0)
    reducer = GradientReducer(model.parameters(), few, config.parallel.bucket_bytes, UNRECORDED)
    return assembled(application, config, ranks, model, reducer, None, Phases(PhaseTimer(), ranks.device))


def full_step(
    application: Application, config: RunConfig, ranks: Ranks, shape: MeshShape, phases: Phases,
    communication: Communication,
) -> Step:  # fmt: skip
    """A step of all ranks, split like a run; collective."""
    model = build_model(application, config, ranks.device, 0)
    broadcast_state(model, ranks.group)
    shared = data_ranks(ranks.launch.rank // shape.spatial_size, shape.data, None, config.train.batchnorm_group_size)
    mesh = make_mesh(ranks.group, shape, shared.processes, config.parallel.timeout_s, communication)
    _, reducer = distribute(application, config, model, ranks.group, mesh, shared, communication)
    return assembled(application, config, ranks, model, reducer, mesh, phases)


def assembled(
    application: Application, config: RunConfig, ranks: Ranks, model: nn.Module,
    reducer: GradientReducer | ShardedGradients, mesh: Mesh | None, phases: Phases,
) -> Step:  # fmt: skip
    """The step with its task, optimizer and batch."""
    task: Task = application.module("task").build_task(config)
    optimizer = build_optimizer(config, task, model, ranks.device, ranks.precision)
    inputs, target = whole_batch(application, config, config.train.local_batch_size, ranks.device)
    if inputs.is_floating_point():
        inputs = inputs.to(ranks.precision.dtype)
    set_sample_keys(model, sample_keys(0, 0, torch.arange(config.train.local_batch_size)))
    called: Any = compiled(model) if config.train.compile else model
    part = inputs if mesh is None else own_part(inputs, mesh.axes)
    return Step(config, ranks, called, reducer, optimizer, task, (part, target), phases)


def timed_steps(
    step: Callable[[], None] | None, group: Group, size: int, config: RunConfig, flop: float, roof: float | None,
    budget_s: float,
) -> StepTimes:  # fmt: skip
    """Time steps of the first ``size`` ranks for about ``budget_s``; collective among all."""
    device = group.device
    wait = synchronizer(device)

    def once() -> float:
        group.barrier()
        wait()
        started = time.perf_counter()
        if step is not None:
            step()
        wait()
        return time.perf_counter() - started

    once()
    slowest = group.max(once())
    repeats = min(MOST_STEPS, max(LEAST_STEPS, round(budget_s / max(slowest, 1e-6))))
    everyone = group.all_gather_object([once() for _ in range(repeats)])[:size]
    steps = [max(seconds) for seconds in zip(*everyone, strict=True)]
    of_rank = tuple(median(seconds) for seconds in everyone)
    rates = tuple(flop / seconds for seconds in of_rank)
    return StepTimes(
        size, 1 + group.all_gather_object(group.launch.node_rank)[size - 1], config.train.local_batch_size, repeats,
        median(steps), min(steps), max(steps), of_rank, rates,
        tuple(rate / roof for rate in rates) if roof else (),
    )  # fmt: skip


def profiled(
    step: Callable[[], None], device: torch.device
) -> tuple[dict[str, float], tuple[ProfiledOperation, ...]]:  # fmt: skip
    """Seconds of a step by kind of operation and of the longest operations, from torch's profiler.

    The other ranks make as many steps meanwhile.
    """
    kernel_profile = kernel_times(step, device, PROFILED_STEPS)
    times: dict[str, float] = {}
    for kind, milliseconds in kernel_profile["kernel_ms_by_kind"].items():
        name = KIND_OF_PROFILE.get(kind, kind)
        times[name] = times.get(name, 0.0) + milliseconds / 1e3
    longest = tuple(
        ProfiledOperation(
            each["name"], KIND_OF_PROFILE.get(each["kind"], each["kind"]), each["ms"] / 1e3, each["calls"]
        )
        for each in kernel_profile["longest"]
    )
    return times, longest


def silent_steps(step: Step) -> tuple[dict[str, float], tuple[ProfiledOperation, ...]]:
    """Make as many steps as are profiled on the first rank."""
    for _ in range(PROFILED_STEPS):
        step()
    return {}, ()


def optimizer_seconds(step: Step) -> float:
    """Seconds of an update alone, with gradients of zero; sharded states take part in a collective."""
    wait, scaler = synchronizer(step.ranks.device), step.ranks.precision.scaler
    seconds = []
    if scaler is not None:
        # A scaler that has scaled no loss refuses an update.
        scaler.scale(torch.zeros((), device=step.ranks.device))
    for _ in range(LEAST_STEPS + 1):
        for parameter in step.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        wait()
        started = time.perf_counter()
        step.optimizer.step()
        wait()
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])
