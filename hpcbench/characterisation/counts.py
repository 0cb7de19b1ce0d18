"""What a training step of one rank asks for, counted on tensors without data: kernels, footprint and messages.

The pass is counted at the local batch and at twice that, which shows what grows with the batch and what does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from hpcbench.application import Application
from hpcbench.characterisation.message_counts import Links, gradient_messages, shared_messages
from hpcbench.characterisation.model import Footprint, Kernel, Message
from hpcbench.characterisation.operations import Operation, OperationRecorder, TensorShape
from hpcbench.config.schema import RunConfig
from hpcbench.measure.flops import count_flops
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.planning.counting import PassCount, build, count_pass, shapes
from hpcbench.planning.plan import Machine, MeshPlan, counted_ranks, mesh_plan, moments

NO_LINKS = Links()
LAYERWISE_READS = 2
"""LARS and LAMB read parameters and gradients once more, for their norms, which nothing can avoid."""


@dataclass(frozen=True)
class Counted:
    """The work of a step, with the operation that each kernel of a pass comes from."""

    kernels: tuple[Kernel, ...]
    operations: tuple[Operation | None, ...]
    """The operation of each kernel; ``None`` for the optimizer's."""
    footprint: Footprint
    messages: tuple[Message, ...]
    parameters: int
    useful_flop: float


def count_step(
    application: Application, config: RunConfig, shape: MeshShape, links: Links = NO_LINKS
) -> Counted:  # fmt: skip
    """Count a step of the rank with the most work in a mesh of ``shape``, whose messages cross ``links``.

    ``config.train.precision`` must be resolved. Raises ``InputError`` where the application does not give the shapes
    of a batch, and where its model cannot be split in this way.
    """
    train = config.train
    rank = counted_ranks(shape.spatial)[0]
    model = build(application, config)
    recorder, double = OperationRecorder(), OperationRecorder()
    counted = count_pass(application, config, shape, rank, train.local_batch_size, recorder)
    doubled = count_pass(application, config, shape, rank, 2 * train.local_batch_size, double)
    pairs = merged(recorder.operations, double.operations, train.accumulation)
    sizes = [parameter.nbytes for parameter in model.parameters()]
    plan = planned(application, config, model, shape, counted)
    update = optimizer_kernel(sum(parameter.numel() for parameter in model.parameters()), sum(sizes), config)
    written = made_by(recorder.operations, double.operations)
    footprint = Footprint(
        parameters=plan.parameters, gradients=plan.gradients, optimizer=plan.optimizer, saved=counted.activations,
        peak=counted.peak, input=counted.input, written=written,
        saved_fixed=max(0, 2 * counted.activations - doubled.activations),
    )  # fmt: skip
    return Counted(
        (*(kernel for kernel, _ in pairs), update), (*(operation for _, operation in pairs), None), footprint,
        (*gradient_messages(application, model, config, shape, links),
         *shared_messages(counted.traffic, train.accumulation, shape, config, links)),
        sum(parameter.numel() for parameter in model.parameters()),
        count_flops(model, shapes(application, config, 1)[0]).training / shape.spatial_size,
    )  # fmt: skip


def planned(
    application: Application, config: RunConfig, model: Any, shape: MeshShape, counted: PassCount
) -> MeshPlan:  # fmt: skip
    """The plan of the mesh from what was counted; it knows the memory of states."""
    train = config.train
    machine = Machine(1, shape.data * shape.spatial_size)
    batch = train.local_batch_size * train.accumulation * shape.data
    return mesh_plan(model, config, machine, shape, (train.local_batch_size, train.accumulation, batch), [counted], 0)


def merged(
    operations: Sequence[Operation], doubled: Sequence[Operation], passes: int
) -> list[tuple[Kernel, Operation]]:  # fmt: skip
    """Equal operations as one kernel, in the order of their first execution; ``doubled`` are those of twice the batch.

    If the other pass lacks an operation, all of its work is taken to grow with the batch.
    """
    kernels_by_key: dict[Any, tuple[Kernel, Operation]] = {}
    for operation, other in zip(operations, aligned(operations, doubled), strict=True):
        key = operation.func, operation.direction, str(operation.args), str(operation.kwargs)
        if key in kernels_by_key:
            kernel, first = kernels_by_key[key]
            kernels_by_key[key] = replace(kernel, count=kernel.count + passes), first
            continue
        moved = operation.read_bytes + operation.written_bytes
        fixed_flop = fixed_bytes = 0.0
        if other is not None:
            fixed_flop = max(0.0, 2 * operation.flop - other.flop)
            fixed_bytes = max(0.0, 2.0 * moved - other.read_bytes - other.written_bytes)
        kernel = Kernel(
            operation.name, operation.kind, operation.direction, operation.precision,
            tuple(one.shape for one in operation.inputs), settings_of(operation), passes, operation.flop,
            operation.read_bytes, operation.written_bytes, fixed_flop, fixed_bytes,
        )  # fmt: skip
        kernels_by_key[key] = kernel, operation
    return list(kernels_by_key.values())


def aligned(operations: Sequence[Operation], others: Sequence[Operation]) -> list[Operation | None]:
    """For each operation, the same one in the other pass; one sample has copies that several lack, and the reverse."""
    names, other_names = ([operation.name for operation in some] for some in (operations, others))
    counterparts: list[Operation | None] = [None] * len(operations)
    for first, second, size in SequenceMatcher(None, names, other_names, autojunk=False).get_matching_blocks():
        counterparts[first : first + size] = others[second : second + size]
    return counterparts


def made_by(operations: Sequence[Operation], doubled: Sequence[Operation]) -> int:
    """Bytes that grow with the batch and that the forward pass writes: each activation once, even if in place."""
    once, twice = (
        sum(operation.written_bytes for operation in pass_operations if operation.direction == "forward")
        for pass_operations in (operations, doubled)
    )
    return twice - once


def settings_of(operation: Operation) -> str:
    """What determines the work of an operation besides its shapes, in words."""
    args = operation.args
    if operation.name not in ("convolution", "convolution_backward"):
        plain = [arg for arg in args if isinstance(arg, int | float | list) and not holds_tensor(arg)]
        return ", ".join(map(str, plain))[:80]
    stride, padding, dilation, transposed, _, groups = args[3:9] if operation.name == "convolution" else args[4:10]
    parts = [f"stride {crossed(stride)}", f"padding {crossed(padding)}"]
    parts += [f"dilation {crossed(dilation)}"] if set(dilation) != {1} else []
    parts += [f"groups {groups}"] if groups > 1 else []
    parts += ["transposed"] if transposed else []
    if operation.name == "convolution_backward" and not args[10][0]:
        parts.append("no input gradient")
    return ", ".join(parts)


def crossed(numbers: Sequence[int]) -> str:
    """``1x1``."""
    return "x".join(map(str, numbers))


def holds_tensor(value: Any) -> bool:
    """Whether a list holds tensors."""
    return isinstance(value, list) and any(isinstance(entry, TensorShape) for entry in value)


def optimizer_kernel(numbers: int, size: int, config: RunConfig) -> Kernel:
    """The update of all parameters: parameters and gradients read, states read and written, parameters written.

    Its operations, a few per parameter, are not counted.
    """
    from hpcbench.config.optimizers import optimizer_info
    from hpcbench.optim.layerwise import LayerwiseOptimizer
    from hpcbench.optim.registry import builder_of

    states = moments(config.optim)
    layerwise = issubclass(builder_of(optimizer_info(config.optim.name)), LayerwiseOptimizer)
    read = (2 + states + (LAYERWISE_READS if layerwise else 0)) * size
    written = (1 + states) * size
    return Kernel(
        config.optim.name, "optimizer", "optimizer", "float64" if config.train.precision == "64-true" else "float32",
        ((numbers,),), f"{states} states per parameter", 1, 0.0, read, written, 0.0, read + written,
    )  # fmt: skip
