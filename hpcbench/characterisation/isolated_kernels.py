"""Times each kernel of a step alone, on tensors of its shapes and layouts, on the devices of all ranks at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from hpcbench.characterisation.model import Kernel
from hpcbench.characterisation.operations import Operation, TensorShape
from hpcbench.characterisation.timing import timed
from hpcbench.parallel.group import Group

LEAST_BUDGET_S = 0.01


def time_alone(
    kernels: Sequence[Kernel], operations: Sequence[Operation | None], group: Group, budget_s: float,
    say: Callable[[str], None] = lambda words: None,
) -> tuple[Kernel, ...]:  # fmt: skip
    """The kernels with their times; all together take about ``budget_s``, but each runs at least twice.

    All ranks begin each kernel together, since those of a node share its memory and its clock, and the median over
    them counts. A kernel has no time where a rank cannot execute it alone, or memory does not suffice. Collective.
    """
    shares = budget_shares(kernels, budget_s)
    times = []
    for number, (kernel, operation, share) in enumerate(zip(kernels, operations, shares, strict=True)):
        say(f"kernel {number + 1} of {len(kernels)}: {kernel.operation}")
        group.barrier()
        times.append(None if operation is None else seconds_alone(operation, group.device, share))
    say("")
    return tuple(
        replace(kernel, alone_s=over_ranks(of_ranks))
        for kernel, *of_ranks in zip(kernels, *group.all_gather_object(times), strict=True)
    )


def over_ranks(times: Sequence[float | None]) -> float | None:
    """The median of a kernel's times on all ranks; ``None`` where one has none."""
    known = [seconds for seconds in times if seconds is not None]
    return median(known) if len(known) == len(times) else None


def budget_shares(kernels: Sequence[Kernel], budget_s: float) -> list[float]:
    """Seconds for each kernel: in proportion to its operations and bytes, with a minimum for the small ones."""
    work = [kernel.flop / 10 + kernel.bytes for kernel in kernels]
    whole = sum(work) or 1.0
    return [max(LEAST_BUDGET_S, budget_s * kernel_work / whole) for kernel_work in work]


def seconds_alone(operation: Operation, device: torch.device, budget_s: float) -> float | None:
    """Seconds of an operation; ``None`` where it cannot be executed alone."""
    try:
        with torch.no_grad():
            args, kwargs = arguments(operation, device)
            return timed(lambda: operation.func(*args, **kwargs), device, budget_s)
    except (RuntimeError, NotImplementedError, TypeError, IndexError):
        return None


def arguments(operation: Operation, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a real pass on ``device`` could give to an operation."""
    args = with_indices(operation.name, filled(as_executed(operation), device))
    return args, filled(operation.kwargs, device)


def as_executed(operation: Operation) -> tuple[Any, ...]:
    """The arguments as a real pass has them: statistics that batch norm saves have the type of its weights."""
    args = operation.args
    if operation.name != "native_batch_norm_backward" or not isinstance(args[2], TensorShape):
        return args
    saved = [replace(arg, dtype=args[2].dtype) if isinstance(arg, TensorShape) else arg for arg in args[5:7]]
    return (*args[:5], *saved, *args[7:])


def with_indices(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of the gradient of a maximum pooling with indices that a forward pass finds.

    If all were zero, all gradients of a channel would be added to one number.
    """
    if not (name.startswith("max_pool") and name.endswith("_with_indices_backward")):
        return args
    forward = getattr(torch.ops.aten, name.removesuffix("_backward"))
    return (*args[:-1], forward(*args[1:-1])[1])


def filled(values: Any, device: torch.device) -> Any:
    """The same with tensors on ``device`` in place of ``TensorShape``: random numbers, or zeros for integers."""
    if isinstance(values, TensorShape):
        return tensor_of(values, device)
    if isinstance(values, torch.device):
        return device
    if isinstance(values, dict):
        return {key: filled(entry, device) for key, entry in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(filled(entry, device) for entry in values)
    return values


def tensor_of(shape: TensorShape, device: torch.device) -> Tensor:
    """A tensor of this shape and layout; integer zeros are indices and classes that exist."""
    span = 1 + sum((size - 1) * step for size, step in zip(shape.shape, shape.stride, strict=True))
    numbers = max(0, span) if 0 not in shape.shape else 0
    if shape.dtype.is_floating_point:
        memory = torch.rand(numbers, device=device).to(shape.dtype)
    else:
        memory = torch.zeros(numbers, device=device, dtype=shape.dtype)
    return memory.as_strided(shape.shape, shape.stride)
