"""``hpcbench characterize``: counts, then measures on all available ranks, and combines both."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from hpcbench import __version__
from hpcbench.application import Application
from hpcbench.characterisation.counts import Counted, count_step
from hpcbench.characterisation.input_cost import describe_input
from hpcbench.characterisation.isolated_kernels import time_alone
from hpcbench.characterisation.message_counts import Links
from hpcbench.characterisation.message_curves import messages_alone
from hpcbench.characterisation.model import (
    PRODUCTS,
    Characterisation,
    Host,
    Kernel,
    Message,
    Roof,
    total,
)
from hpcbench.characterisation.roofline import step_roof
from hpcbench.characterisation.roofs import device_roofs, roof_notes
from hpcbench.characterisation.steps import Measured, full_step, grows_by_ranks, measure_steps, optimizer_seconds
from hpcbench.characterisation.storage_roofs import storage_roofs
from hpcbench.config.resolve import as_tree
from hpcbench.config.schema import RunConfig
from hpcbench.measure.communication import Communication
from hpcbench.measure.phases import Phases
from hpcbench.measure.shared_clock import SharedClock
from hpcbench.measure.system import accelerator, processor, software
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh import empty_axes
from hpcbench.parallel.mesh_shape import MeshShape, check_axes, mesh_shape
from hpcbench.parallel.precision import resolve_precision
from hpcbench.parallel.staging_world import staging_world
from hpcbench.planning.counting import shapes
from hpcbench.train.check_mesh import check_mesh
from hpcbench.train.memory_limits import check_memory
from hpcbench.train.ranks import Ranks
from staging.phase_timer import PhaseTimer

SOFTWARE = ("python", "torch", "torch_cuda", "torch_hip", "numpy")
STEPS_SHARE, KERNELS_SHARE = 0.4, 0.6
"""Shares of the budget for steps and for kernels; roofs, curves and storage have short times of their own."""
LEAST_PROBE_S, PROBE_SHARE = 0.5, 0.1


@dataclass(frozen=True)
class Wanted:
    """What is measured."""

    seconds: float = 60.0
    """Approximate time for steps and kernels together."""
    storage: tuple[Path, ...] = ()
    """Folders to probe."""
    measured: bool = True
    """Whether anything is measured; if not, counts alone."""


def characterize(application: Application, config: RunConfig, ranks: Ranks, wanted: Wanted) -> Characterisation:
    """Characterise training on the available ranks; collective, with the same result on all.

    Raises ``InputError`` on all ranks for a mesh, a batch or a dataset that is not possible.
    """
    say = progress if ranks.launch.rank == 0 else silent
    characterisation, counted, config = counted_here(application, config, ranks, wanted, say)
    if wanted.measured:
        shape = mesh_of(application, config, ranks.launch.world_size)
        characterisation = with_times(characterisation, application, config, ranks, shape, counted, wanted, say)
    say("")
    return ranks.group.broadcast_object(characterisation)


def counted_here(
    application: Application, config: RunConfig, ranks: Ranks, wanted: Wanted, say: Callable[[str], None]
) -> tuple[Characterisation, Counted, RunConfig]:  # fmt: skip
    """What is known before any step: counts, input and roofs; and the configuration with its precision.

    Collective. Raises ``InputError`` on all ranks.
    """
    launch = ranks.launch
    config = with_precision(config, ranks.device)
    shape = ranks.together(lambda: mesh_of(application, config, launch.world_size))
    if wanted.measured:
        ranks.together(lambda: check_mesh(application, config, shape, launch.rank))
        ranks.together(lambda: check_memory(application, config, ranks.device, launch.local_size))
    say("counting")
    links = links_of(ranks.group)
    counted = ranks.together(lambda: count_step(application, config, shape, links))
    sample = ranks.together(lambda: prepared(application, config))
    axes = empty_axes(shape, launch.rank)
    data = ranks.together(
        lambda: describe_input(application, config, ranks.device, sample, read=wanted.measured, axes=axes)
    )
    roofs = measured_roofs(config, ranks, wanted, say)
    characterisation = Characterisation(
        application=application.name, title=application.title, preset=config.preset,
        date=datetime.now(UTC).isoformat(timespec="seconds"), version=__version__,
        host=host_of(ranks), precision=config.train.precision, local_batch=config.train.local_batch_size,
        accumulation=config.train.accumulation, optimizer=config.optim.name, parameters=counted.parameters,
        useful_flop=counted.useful_flop, kernels=counted.kernels, footprint=counted.footprint, input=data,
        messages=counted.messages, roofs=tuple(roofs),
        notes=(*notes_of(config, wanted, launch.world_size), *(roof_notes(roofs, ranks.device) if roofs else ())),
        configuration=as_tree(config),
    )  # fmt: skip
    return characterisation, counted, config


def with_times(
    characterisation: Characterisation, application: Application, config: RunConfig, ranks: Ranks, shape: MeshShape,
    counted: Counted, wanted: Wanted, say: Callable[[str], None],
) -> Characterisation:  # fmt: skip
    """Add the times of steps, kernels and messages to what was counted; collective."""
    roof = step_roof(characterisation)
    products = total([kernel for kernel in counted.kernels if kernel.kind in PRODUCTS], "flop")
    budget = wanted.seconds * STEPS_SHARE / (1 + ranks.launch.world_size.bit_length())
    steps = measure_steps(application, config, ranks, shape, products, roof.value if roof else None, budget, say)
    say("messages")
    curves, messages = messages_alone(counted.messages, ranks.group, ranks.device, config.parallel.timeout_s)
    kernels = time_alone(counted.kernels, counted.operations, ranks.group, wanted.seconds * KERNELS_SHARE, say)
    kernels = (*kernels[:-1], replace(kernels[-1], alone_s=steps.optimizer_s))
    notes = [*characterisation.notes, *untimed(kernels)]
    if not steps.profile:
        notes.append(f"torch's profiler saw no kernels of {ranks.device.type}: a step's time by kind is not known")
    return replace(
        characterisation, kernels=kernels, notes=tuple(notes), steps=steps.steps,
        messages=with_exposed(messages, steps), curves=curves, profile=steps.profile, longest=steps.longest,
        footprint=replace(characterisation.footprint, measured_peak=steps.peak_bytes),
    )  # fmt: skip


def with_precision(config: RunConfig, device: torch.device) -> RunConfig:
    """The configuration with the precision that ``auto`` means on this device, and the device that counts are for."""
    config = copy.deepcopy(config)
    config.train.precision = resolve_precision(config.train.precision, device)
    if device.type == "cpu":
        config.parallel.accelerator = "cpu"
    return config


def mesh_of(application: Application, config: RunConfig, ranks: int) -> MeshShape:
    """The mesh of the configuration. Raises ``InputError`` where it cannot be formed."""
    check_axes(config.parallel.spatial, shapes(application, config, 1)[0].dim() - 2)
    return mesh_shape(ranks, config.parallel.spatial)


def prepared(application: Application, config: RunConfig) -> float:
    """Bytes of a sample as model and loss take it."""
    return float(sum(tensor.nbytes for tensor in shapes(application, config, 1)))


def links_of(group: Group) -> Links:
    """The links among the ranks; collective."""
    launch = group.launch
    if group.world_size == 1:
        return Links()
    if launch.nodes == 1:
        return Links("within a node")
    sizes, nodes = zip(*group.all_gather_object((launch.local_size, launch.node_rank)), strict=True)
    blocks = len(set(sizes)) == 1 and list(nodes) == sorted(nodes)
    return Links("between nodes", launch.local_size if blocks else None)


def measured_roofs(
    config: RunConfig, ranks: Ranks, wanted: Wanted, say: Callable[[str], None]
) -> list[Roof]:  # fmt: skip
    """Measure the roofs of the device and of storage; collective. Empty where nothing is measured."""
    if not wanted.measured:
        return []
    say("roofs")
    roofs = device_roofs(ranks.device, config.train.precision, ranks.group)
    if wanted.storage:
        say("storage")
        budget = max(LEAST_PROBE_S, wanted.seconds * PROBE_SHARE / len(wanted.storage))
        roofs += storage_roofs(wanted.storage, staging_world(ranks.group), budget)
    return roofs


def with_exposed(messages: Sequence[Message], measured: Measured) -> tuple[Message, ...]:
    """The messages with the time that steps waited for them; those of one kind share its time by their bytes.

    A single rank sends none.
    """
    sizes: dict[str, int] = {}
    for message in messages:
        sizes[message.kind] = sizes.get(message.kind, 0) + message.bytes
    return tuple(
        message if message.link == "none" or message.kind not in measured.exposed_s
        else replace(message, exposed_s=measured.exposed_s[message.kind] * message.bytes / max(1, sizes[message.kind]))
        for message in messages
    )  # fmt: skip


def host_of(ranks: Ranks) -> Host:
    """The machine, as this rank sees it; collective."""
    device, launch = ranks.device, ranks.launch
    if device.type == "cpu":
        import psutil

        from hpcbench.measure.memory import memory_limit_bytes

        model, memory = processor()["host_processor_model_name"], memory_limit_bytes() or psutil.virtual_memory().total
    else:
        model = accelerator()["accelerator_model_name"]
        memory = int(torch.get_device_module(device).get_device_properties(device).total_memory)
    import platform

    versions = software()
    return Host(
        platform.node(), device.type, model, launch.nodes, launch.world_size, ranks.threads, memory,
        {name: versions[name] for name in SOFTWARE if name in versions},
    )  # fmt: skip


def notes_of(config: RunConfig, wanted: Wanted, ranks: int) -> Sequence[str]:
    """What is left out, and why."""
    notes = []
    if not wanted.measured:
        notes.append("counted alone: nothing was measured")
        return notes
    if config.train.cuda_graph:
        notes.append("steps are not captured as a graph here, as they are in a run with train.cuda_graph")
    if not config.data.root:
        notes.append("no dataset at hand (--data.root): reading and decoding were not measured")
    if not wanted.storage:
        notes.append("no folder of storage was named (--storage): its roofs were not measured")
    if ranks > 1 and not grows_by_ranks(config):
        notes.append("steps were timed on all ranks, not on fewer: spatial parallelism is on, or states are sharded")
    if ranks == 1:
        notes.append("one rank: no messages were sent, and links have no curves")
    return notes


def untimed(kernels: Sequence[Kernel]) -> list[str]:
    """How many kernels have no time, in words; empty if each has one."""
    missing = [kernel for kernel in kernels if kernel.alone_s is None]
    if not missing:
        return []
    names = ", ".join(dict.fromkeys(kernel.operation for kernel in missing))
    return [f"no time alone of {len(missing)} of {len(kernels)} kernels, for want of memory or of an operation that "
            f"the device has: {names}"]  # fmt: skip


def kernels_alone(
    application: Application, config: RunConfig, ranks: Ranks, seconds: float
) -> Characterisation:  # fmt: skip
    """Roofs, and the kernels and messages of a step with their times alone, for ``hpcbench kernels``; collective.

    Raises ``InputError`` on all ranks as ``characterize`` does.
    """
    wanted = Wanted(seconds)
    say = progress if ranks.launch.rank == 0 else silent
    characterisation, counted, config = counted_here(application, config, ranks, wanted, say)
    kernels = time_alone(counted.kernels, counted.operations, ranks.group, seconds, say)
    say("optimizer")
    update = replace(kernels[-1], alone_s=optimizer_alone(application, config, ranks))
    say("messages")
    curves, messages = messages_alone(counted.messages, ranks.group, ranks.device, config.parallel.timeout_s)
    say("")
    kernels = (*kernels[:-1], update)
    notes = (*roof_notes(characterisation.roofs, ranks.device), *untimed(kernels))
    found = replace(characterisation, kernels=kernels, curves=curves, messages=messages, notes=notes)
    return ranks.group.broadcast_object(found)


def optimizer_alone(application: Application, config: RunConfig, ranks: Ranks) -> float:
    """Seconds of an update of all parameters, on the slowest rank; collective."""
    group, phases = ranks.group, Phases(PhaseTimer(), ranks.device)
    shape = mesh_of(application, config, group.world_size)
    step = full_step(application, config, ranks, shape, phases, Communication(phases, SharedClock(group)))
    return group.max(optimizer_seconds(step))


def progress(words: str) -> None:
    """Show a waiting user what is being done."""
    if sys.stderr.isatty():
        print(f"\r{words:70}\r", end="", file=sys.stderr, flush=True)


def silent(words: str) -> None:
    """Show nothing."""
