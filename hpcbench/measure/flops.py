"""Floating-point operations of a model's forward pass and training pass, counted without computing anything.

Model and inputs run on the meta device, where operations have shapes but no data. A multiply-add is two operations;
convolutions, transposed convolutions and matrix products are counted, as in published figures. The gradient of a
grouped convolution costs as much as its forward pass (torch's own counter ignores the groups there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


@dataclass(frozen=True)
class FlopCount:
    """Operations of one forward pass, and of forward and backward pass together, for the given inputs."""

    forward: int
    training: int


def count_flops(model: nn.Module, *inputs: Tensor) -> FlopCount:
    """Count the operations of ``model`` on ``inputs``; only the shapes and dtypes of the inputs matter.

    The backward pass computes the gradients that training needs: not those of the inputs, nor of frozen parameters.
    The model is left unchanged; it is counted in evaluation mode, which has the same products.
    """
    with _evaluating(model), _Counter() as counter, torch.enable_grad():
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        output = functional_call(
            model, {name: _shape_of(t) for name, t in tensors.items()}, tuple(map(_shape_of, inputs))
        )
        forward = counter.flops
        losses = [part.sum() for part in _tensors(output) if part.requires_grad]
        if losses:
            torch.autograd.backward(losses)
    return FlopCount(forward, counter.flops)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations of every dispatched product."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.flops += product_flops(func, args, result) or 0
        return result


def product_flops(func: Any, args: tuple[Any, ...], result: Any) -> int | None:
    """Return the FLOPs of a torch operation that is a product and returned ``result``; ``None`` for any other."""
    count = _FLOPS.get(func.overloadpacket)
    return None if count is None else count(args, result)


def _convolution(args: tuple[Any, ...], result: Tensor) -> int:
    x: Tensor = args[0]
    weight: Tensor = args[1]
    transposed: bool = args[6]
    # weight is (out, in / groups, kernel...), or (in, out / groups, kernel...) where transposed.
    return 2 * (x if transposed else result).numel() * prod(weight.shape[1:])


def _convolution_backward(args: tuple[Any, ...], result: tuple[Tensor | None, ...]) -> int:
    gradient, x, weight, transposed = args[0], args[1], args[2], args[7]
    needs_input, needs_weight, _ = args[10]
    products = int(needs_input) + int(needs_weight)
    return products * 2 * int((x if transposed else gradient).numel()) * int(prod(weight.shape[1:]))


def _matrix_product(left: int) -> Callable[[tuple[Any, ...], Tensor], int]:
    """Count the operations of a product whose left factor is argument number ``left``."""
    return lambda args, result: 2 * result.numel() * int(args[left].shape[-1])


_FLOPS: Mapping[Any, Callable[[tuple[Any, ...], Any], int]] = {
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten.mm: _matrix_product(0),
    aten.bmm: _matrix_product(0),
    aten.addmm: _matrix_product(1),
    aten.baddbmm: _matrix_product(1),
}


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _shape_of(tensor: Tensor) -> Tensor:
    """Return a tensor of the same shape and dtype without data; float64 data is never touched."""
    return torch.empty_like(tensor, device="meta").requires_grad_(tensor.requires_grad and tensor.is_leaf)


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    return [part for entry in output for part in _tensors(entry)] if isinstance(output, list | tuple) else []
