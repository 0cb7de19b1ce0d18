"""The operations of a pass as torch dispatches them: kind, shapes, operations and least bytes, each from shapes alone.

The least bytes of an operation are those of the tensors that it takes, read once, and of those that it makes or
changes, written once. Views and allocations move nothing. What an operation takes but does not read, such as the input
of a maximum pooling whose indices are known, does not count. A tensor that repeats its elements counts by its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hpcbench.characterisation.model import Direction, Kind
from hpcbench.measure.flops import product_flops

FREE = frozenset({
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias", "lift_fresh",
    "is_same_size", "_unsafe_view", "set_", "resize_", "sym_size", "sym_numel", "sym_stride", "_local_scalar_dense",
})  # fmt: skip
"""Operations that move nothing, besides views."""
COPIES = frozenset({
    "copy_", "copy", "clone", "_to_copy", "cat", "stack", "fill_", "fill", "zero_", "zeros", "zeros_like", "ones",
    "ones_like", "full", "full_like", "new_zeros", "new_ones", "new_full", "constant_pad_nd", "slice_backward",
    "select_backward", "roll", "flip", "index_select", "_foreach_copy_",
})  # fmt: skip
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "linalg_vector_norm", "norm"})
OVERWRITING = frozenset({"copy_", "fill_", "zero_"})
"""Operations that change their first argument without reading it."""
BATCH_NORM_FORWARD, BATCH_NORM_BACKWARD = 8, 9
"""Operations per element. Forward: mean 1, variance 3, normalised 2, scaled and shifted 2. Backward: normalised 2, two
sums 3, gradient 4."""
LOSS = 4
"""Operations per element; those of a softmax are difference, exponential, sum and difference."""


@dataclass(frozen=True)
class TensorShape:
    """A tensor without its data."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Operation:
    """One operation that was dispatched; tensors in ``args`` and ``kwargs`` are ``TensorShape``."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kind: Kind
    direction: Direction
    flop: float
    read_bytes: int
    written_bytes: int
    made_bytes: int
    """The part of what it wrote that lies in new memory."""

    @property
    def name(self) -> str:
        """torch's name."""
        return str(self.func.overloadpacket.__name__)

    @property
    def inputs(self) -> list[TensorShape]:
        """The tensors that it takes."""
        return [entry for entry in flattened((self.args, self.kwargs)) if isinstance(entry, TensorShape)]

    @property
    def precision(self) -> str:
        """The narrowest floating-point type among its inputs; else the type of the first tensor."""
        types = [tensor.dtype for tensor in self.inputs]
        floating = sorted((dtype for dtype in types if dtype.is_floating_point), key=lambda dtype: dtype.itemsize)
        narrowest = [*floating, *types, torch.float32][0]
        return str(narrowest).removeprefix("torch.")


class OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records, in order, every operation that costs something while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "aten" and not func.is_view and func.overloadpacket.__name__ not in FREE:
            self.operations.append(described(func, args, kwargs or {}, result))
        return result


def described(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Operation:
    """What an operation that returned ``result`` did."""
    name, kind = func.overloadpacket.__name__, kind_of(func, args)
    read, written = read_by(name, args, kwargs), distinct(result)
    known = {memory(tensor) for tensor in distinct((args, kwargs))}
    made = sum(size(tensor) for tensor in written if memory(tensor) not in known)
    # autograd numbers a backward pass that is in progress
    backward = torch._C._current_graph_task_id() != -1
    products = product_flops(func, args, result)
    return Operation(
        func, shapes_of(args), shapes_of(kwargs), kind, "backward" if backward else "forward",
        other_flop(name, kind, args, read, written) if products is None else products,
        sum(map(size, read)), sum(map(size, written)), made,
    )  # fmt: skip


def kind_of(func: Any, args: Sequence[Any]) -> Kind:
    """The kind of an operation."""
    name = func.overloadpacket.__name__
    if name in ("convolution", "convolution_backward"):
        weight = args[2 if name == "convolution_backward" else 1]
        groups = args[-2] if name == "convolution_backward" else args[-1]
        return "depthwise convolution" if groups > 1 and weight.shape[1] == 1 else "convolution"
    kind: Kind = "elementwise"
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        kind = "matrix product"
    elif "batch_norm" in name:
        kind = "batch norm"
    elif "pool" in name:
        kind = "pooling"
    elif "loss" in name or "softmax" in name:
        kind = "loss"
    elif name in COPIES:
        kind = "copy"
    elif name in REDUCTIONS:
        kind = "reduction"
    return kind


def other_flop(name: str, kind: Kind, args: Sequence[Any], read: Sequence[Tensor], written: Sequence[Tensor]) -> float:
    """Operations of anything but a product: one per element, except for the kinds above; copies have none."""
    elements = max((tensor.numel() for tensor in (*read, *written)), default=0)
    if kind == "copy":
        return 0.0
    if kind == "batch norm":
        return float(elements * (BATCH_NORM_BACKWARD if "backward" in name else BATCH_NORM_FORWARD))
    if kind == "loss":
        return float(elements * LOSS)
    if kind == "pooling" and "backward" not in name and len(args) > 1 and isinstance(args[1], list | tuple):
        return float(written[0].numel() * prod(args[1])) if "adaptive" not in name else float(elements)
    return float(elements)


def read_by(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that an operation reads."""
    taken: Sequence[Any] = args
    if name in OVERWRITING:
        taken = args[1:]
    elif name == "convolution_backward":
        needs_input, needs_weight, _ = args[10]
        taken = [args[0], args[1] if needs_weight else None, args[2] if needs_input else None]
    elif name.startswith("max_pool") and name.endswith("_with_indices_backward"):
        taken = (args[0], args[-1])
    elif name.endswith("_like") or name.startswith("new_"):
        taken = ()
    return distinct((taken, kwargs))


def distinct(values: Any) -> list[Tensor]:
    """The tensors in nested lists, each memory once."""
    tensors_by_memory: dict[tuple[int, int], Tensor] = {}
    for entry in flattened(values):
        if isinstance(entry, Tensor):
            tensors_by_memory.setdefault((memory(entry), int(entry.storage_offset())), entry)
    return list(tensors_by_memory.values())


def memory(tensor: Tensor) -> int:
    """A key that is the same for tensors that share their memory."""
    return int(tensor.untyped_storage()._cdata)


def size(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; of its memory, where it repeats elements."""
    return int(min(tensor.nbytes, tensor.untyped_storage().nbytes()))


def flattened(values: Any) -> Iterator[Any]:
    """What is in nested lists, tuples and dictionaries."""
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, list | tuple):
        yield values
        return
    for entry in values:
        yield from flattened(entry)


def shapes_of(values: Any) -> Any:
    """The same with ``TensorShape`` in place of tensors."""
    if isinstance(values, Tensor):
        return TensorShape(tuple(values.shape), tuple(values.stride()), values.dtype)
    if isinstance(values, dict):
        return {key: shapes_of(entry) for key, entry in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(shapes_of(entry) for entry in values)
    return values
