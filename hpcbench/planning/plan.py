"""Which meshes the ranks of a machine can form, and what each asks of a rank: memory and bytes sent, from counts alone.

The order: meshes that fit before those that do not, then those that keep the global batch, then those whose samples
stay within a node, then the fewest bytes sent per operation of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpcbench.application import Application
from hpcbench.config.optimizers import OPTIMIZERS, optimizer_info, options_of
from hpcbench.config.schema import OptimConfig, RunConfig
from hpcbench.measure.flops import count_flops
from hpcbench.optim.layerwise import LayerwiseOptimizer
from hpcbench.optim.registry import builder_of, states_of
from hpcbench.parallel.mesh_shape import MeshShape, check_axes, mesh_shape
from hpcbench.parallel.simulated_ranks import data_ranks
from hpcbench.planning.checkpoint_memory import checkpoint_bytes
from hpcbench.planning.counting import PassCount, build, count_pass, on_processor, run_dtype, shapes
from hpcbench.planning.heap import LIBRARY_BYTES, peak_of_steps
from hpcbench.planning.sharded_bytes import gathered_bytes, shard_bytes, sharded_traffic
from staging.errors import InputError
from staging.units import counted

MOST_PLACES = 64
"""The most ranks that a mesh splits a sample over; no mesh with more is tried."""
COUNT_ALL = 4
"""Up to this many ranks of a group, all are counted; of more, those in the middle and at the end."""


@dataclass(frozen=True)
class Machine:
    """The ranks that form meshes: one per GPU."""

    nodes: int
    gpus_per_node: int
    memory: int | None = None
    """Bytes of memory of a GPU, where a mesh has to fit."""

    @property
    def ranks(self) -> int:
        """Number of ranks, one per GPU."""
        return self.nodes * self.gpus_per_node

    def nodes_per_sample(self, shape: MeshShape) -> int:
        """The most nodes that the ranks of one sample span; these ranks are neighbours."""
        groups = range(0, self.ranks, shape.spatial_size)
        return max(
            (first + shape.spatial_size - 1) // self.gpus_per_node - first // self.gpus_per_node + 1 for first in groups
        )


@dataclass(frozen=True)
class MeshPlan:
    """What a mesh asks of one rank, in bytes, the largest over ranks; traffic is that of an optimizer step."""

    shape: MeshShape
    local_batch: int
    accumulation: int
    global_batch: int
    keeps_batch: bool
    """Whether the global batch is the one asked for."""
    nodes: int
    """Nodes that the ranks of one sample are on."""
    parameters: int
    """For a sharded model, with what is gathered at a time."""
    gradients: int
    """With the buffers in which they travel."""
    buckets: int
    """These buffers alone, which stay from step to step; gradients appear as activations are freed."""
    optimizer: int
    activations: int
    """Kept from the forward pass for the backward pass."""
    peak: int
    """The most that a pass holds at a time, activations included."""
    together: int
    """The most that it holds at a time, with the gradients of parameters that exist by then."""
    heap: int
    """For a processor, what its heap takes beyond what is in use, compiled kernels, and code of libraries."""
    input: int
    halo_forward: int
    """Sent to other ranks of the sample: halos, and parts that are gathered."""
    halo_backward: int
    sums: int
    """Put into sums over the ranks of a sample, or of a batch-norm group, both ways."""
    reduced: int
    """Put into the sum of the gradients over all ranks; also sharded parameters that are gathered in each pass."""
    checkpoint: int
    """Host memory of rank 0 for the copy from which a checkpoint is written; 0 where none is written."""
    flop: float
    """Operations of a rank in a step."""
    limit: int | None
    """Memory of a GPU, where it is known."""

    @property
    def state(self) -> int:
        """Bytes that do not depend on the batch."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def memory(self) -> int:
        """Bytes of a rank, at the moment of a step when it needs the most."""
        return self.parameters + self.buckets + self.optimizer + self.together + self.input + self.heap

    @property
    def fits(self) -> bool | None:
        """Whether the memory suffices, where it is known."""
        return None if self.limit is None else self.memory <= self.limit

    @property
    def sent(self) -> int:
        """Bytes that a rank sends in a step."""
        return self.halo_forward + self.halo_backward + self.sums + self.reduced

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key; see the top of this file."""
        return self.fits is False, not self.keeps_batch, self.nodes > 1, self.sent / self.flop, self.shape.spatial_size


@dataclass(frozen=True)
class Plans:
    """The meshes that can be formed, in order, and why others cannot."""

    meshes: list[MeshPlan]
    refused: dict[MeshShape, str]


def plan_meshes(
    application: Application, config: RunConfig, machine: Machine, global_batch: int | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> Plans:  # fmt: skip
    """Plan every mesh of the machine's ranks, samples whole or split in one or two dimensions, and the one asked for.

    ``global_batch`` defaults to that of the preset's local batch and accumulation on all ranks. ``say`` is called with
    what is being counted, and with an empty text at the end. Raises ``InputError`` where no mesh can be formed, where
    none fits, and where ``parallel.spatial`` asks for one that cannot be formed.
    """
    train = config.train
    batch = global_batch or train.local_batch_size * train.accumulation * machine.ranks
    sample, _ = shapes(application, config, 1)
    asked = asked_shape(config, machine, sample.dim() - 2)
    model = build(application, config)
    per_sample = count_flops(model, sample).training

    def form_groups(shape: MeshShape) -> None:
        data_ranks(0, shape.data, None, train.batchnorm_group_size)

    def counted(shape: MeshShape) -> MeshPlan:
        say(f"counting {shape.words}")
        form_groups(shape)
        local, accumulation = share_batch(batch, shape.data, train.local_batch_size)
        counts = [count_pass(application, config, shape, rank, local) for rank in counted_ranks(shape.spatial)]
        return mesh_plan(model, config, machine, shape, (local, accumulation, batch), counts, per_sample)

    plans = {} if asked is None else {asked: counted_as_asked(counted, config, asked)}
    refused: dict[MeshShape, str] = {}
    too_fine: dict[MeshShape, str] = {}
    for shape in mesh_shapes(machine.ranks, sample.dim() - 2):
        if shape in plans:
            continue
        try:
            form_groups(shape)
        except InputError as error:
            refused[shape] = str(error)  # a finer split may form groups
            continue
        if reason := already_refused(shape, too_fine):
            refused[shape] = reason
            continue
        try:
            plans[shape] = counted(shape)
        except InputError as error:
            refused[shape] = too_fine[shape] = str(error)
    say("")
    check(list(plans.values()), refused, machine)
    return Plans(sorted(plans.values(), key=lambda mesh: mesh.order), refused)


def asked_shape(config: RunConfig, machine: Machine, dims: int) -> MeshShape | None:
    """The mesh that ``parallel.spatial`` asks for, ``None`` where it splits nothing.

    Raises ``InputError`` where samples of ``dims`` dimensions or the machine's ranks do not allow it.
    """
    check_axes(config.parallel.spatial, dims)
    shape = mesh_shape(machine.ranks, config.parallel.spatial)
    last = max((number for number, size in enumerate(shape.spatial, 1) if size > 1), default=0)
    return MeshShape(shape.data, shape.spatial[:last]) if last else None


def counted_as_asked(counted: Callable[[MeshShape], MeshPlan], config: RunConfig, shape: MeshShape) -> MeshPlan:
    """The plan of the mesh asked for. Where it cannot be formed, raises ``InputError`` that says it was asked for."""
    try:
        return counted(shape)
    except InputError as error:
        raise InputError(
            f"parallel.spatial ({config.parallel.spatial}) asks for the mesh {shape.words} (data x spatial), which "
            f"can't be formed: {error}"
        ) from None


def plan_mesh(application: Application, config: RunConfig, machine: Machine) -> MeshPlan:
    """The mesh that ``config`` asks for, with its local batch and accumulation; operations are not counted.

    Raises ``InputError`` where the machine's ranks cannot form it.
    """
    train, shape = config.train, mesh_shape(machine.ranks, config.parallel.spatial)
    check_axes(config.parallel.spatial, shapes(application, config, 1)[0].dim() - 2)
    model = build(application, config)
    local = train.local_batch_size
    counts = [count_pass(application, config, shape, rank, local) for rank in counted_ranks(shape.spatial)]
    batch = local * train.accumulation * shape.data
    return mesh_plan(model, config, machine, shape, (local, train.accumulation, batch), counts, 0)


def mesh_plan(
    model: nn.Module, config: RunConfig, machine: Machine, shape: MeshShape, batches: tuple[int, int, int],
    counts: Sequence[PassCount], per_sample: int,
) -> MeshPlan:  # fmt: skip
    """Put together what was counted; ``batches`` are local batch, accumulation and the global batch asked for."""
    local, accumulation, asked = batches
    global_batch = local * accumulation * shape.data
    whole, alone, sharded = counts[0].parameters, machine.ranks == 1, config.parallel.shard_states
    own_bytes = shard_bytes(model, shape.data) if sharded else whole
    wire = wire_bytes(whole, config)
    buckets = 0 if alone or sharded else whole if wire == whole else whole + wire
    together = gathered_bytes(model, shape.data) if sharded else 0
    passes = [count.traffic for count in counts]
    peak, optimizer = max(count.peak for count in counts), own_bytes * moments(config.optim)
    input_bytes = max(count.input for count in counts)
    # Gradients of earlier micro-batches exist from the start, and gathered shards are counted above.
    held = (
        max(own_bytes, *(count.together for count in counts)) if accumulation == 1 and not sharded else own_bytes + peak
    )
    used = own_bytes + buckets + optimizer + held + input_bytes
    heap = 0
    if on_processor(config) and not sharded:
        most = max(taken(model, config, count, buckets, accumulation) for count in counts)
        heap = max(0, most - used) + LIBRARY_BYTES
    return MeshPlan(
        shape, local, accumulation, global_batch, global_batch == asked, machine.nodes_per_sample(shape),
        parameters=own_bytes + together, gradients=own_bytes + buckets, buckets=buckets, optimizer=optimizer,
        activations=max(count.activations for count in counts),
        peak=peak, together=held, heap=heap,
        input=input_bytes,
        halo_forward=accumulation * max(traffic.forward for traffic in passes),
        halo_backward=accumulation * max(traffic.backward for traffic in passes),
        sums=accumulation * max(traffic.sums for traffic in passes),
        reduced=0 if alone else sharded_traffic(model, shape, accumulation) if sharded else wire,
        checkpoint=checkpoint_bytes(model, moments(config.optim), shape.data if sharded else None)
        if config.train.checkpoint_every else 0,
        flop=per_sample * global_batch / machine.ranks,
        limit=machine.memory,
    )  # fmt: skip


def wire_bytes(gradients: int, config: RunConfig) -> int:
    """Bytes of whole gradients as they are sent; rounded ones are a copy of their own."""
    dtype = run_dtype(config)
    rounded = dtype if config.parallel.reduce_dtype == "gradient" else getattr(torch, config.parallel.reduce_dtype)
    return gradients // dtype.itemsize * int(rounded.itemsize)


def taken(model: nn.Module, config: RunConfig, count: PassCount, buckets: int, accumulation: int) -> int:
    """Bytes that a processor's heap reaches in steps of such passes."""
    parameters = [parameter.nbytes for parameter in model.parameters()]
    # LARS and LAMB work on one bucket at a time, and a large parameter is a bucket.
    layerwise = issubclass(builder_of(optimizer_info(config.optim.name)), LayerwiseOptimizer)
    standing = [count.input, buckets, *([max(parameters)] if layerwise else [])]
    return peak_of_steps(parameters, moments(config.optim), standing, count.events, accumulation)


def mesh_shapes(ranks: int, dims: int) -> Iterator[MeshShape]:
    """All meshes of ``ranks`` ranks, for samples with ``dims`` dimensions; coarser splits first."""
    for size in range(1, min(ranks, MOST_PLACES) + 1):
        if ranks % size:
            continue
        yield MeshShape(ranks // size, (size,))
        if dims > 1:
            for first in range(2, size // 2 + 1):
                if size % first == 0:
                    yield MeshShape(ranks // size, (first, size // first))


def already_refused(shape: MeshShape, refused: dict[MeshShape, str]) -> str | None:
    """Why a split that is nowhere finer than ``shape``, and splits at all, was refused, if one was."""
    for other, reason in refused.items():
        if other.spatial_size > 1 and all(
            size <= own_size for size, own_size in zip((*other.spatial, 1)[:2], (*shape.spatial, 1)[:2], strict=True)
        ):
            return reason
    return None


def share_batch(global_batch: int, data: int, most: int) -> tuple[int, int]:
    """Local batch, of at most ``most`` samples, and accumulation of each place along ``data``.

    Their product times ``data`` is the global batch where ``data`` divides it, else the nearest multiple below it, or
    one sample for each place.
    """
    samples = max(1, global_batch // data)
    local = max(part for part in range(1, most + 1) if samples % part == 0)
    return local, samples // local


def counted_ranks(spatial: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The ranks of a group that are counted, by their places along the axes.

    Those in the middle have the most neighbours, those at the end the longest part; in small groups, all.
    """
    grid: list[tuple[int, ...]] = [()]
    for size in spatial:
        grid = [(*place, index) for place in grid for index in range(size)]
    if len(grid) <= COUNT_ALL:
        return grid
    return [tuple(size // 2 for size in spatial), tuple(size - 1 for size in spatial)]


def moments(optim: OptimConfig) -> int:
    """Number of state tensors of an optimizer for each parameter."""
    builder, options = builder_of(optimizer_info(optim.name)), options_of(optim)
    if issubclass(builder, LayerwiseOptimizer):
        return len(builder.moments)
    if optim.name not in OPTIMIZERS:
        return states_of(optim)
    return 2 if "betas" in options else int(options["momentum"] > 0)


def check(meshes: Sequence[MeshPlan], refused: dict[MeshShape, str], machine: Machine) -> None:
    """Raise ``InputError`` where there is no mesh, or none that fits."""
    if not meshes:
        raise InputError(
            f"{counted(machine.ranks, 'rank')} form{'s' if machine.ranks == 1 else ''} no mesh: "
            f"{next(iter(refused.values()))}"
        )
    if all(mesh.fits is False for mesh in meshes):
        least = min(meshes, key=lambda mesh: mesh.memory)
        assert machine.memory is not None
        raise InputError(
            f"no mesh of {counted(machine.ranks, 'rank')} fits {machine.memory / 1e9:.4g} GB per GPU: the least is "
            f"{least.shape.words} (data x spatial) with {least.memory / 1e9:.4g} GB; lower train.local_batch_size, set "
            "parallel.activation_checkpointing or parallel.shard_states, or take more GPUs"
        )
