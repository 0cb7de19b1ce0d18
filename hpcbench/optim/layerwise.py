"""What LARS and LAMB share: a rate for each layer from the norms of its weights and of its update.

A step never waits for an accelerator: norms, trust ratios and the scaler's verdict stay there, so that it can be
captured in a graph. Groups may set ``adapt`` false (trust ratio 1). Each parameter is one layer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hpcbench.optim.clip import clip_divisor
from hpcbench.optim.tensors import (
    buckets,
    check_parameter,
    global_norm,
    gradient,
    local,
    norm_dtype,
    squared_norms,
    summed_over_shards,
)
from staging.errors import InputError


class LayerwiseOptimizer(Optimizer):
    """Base of the optimizers with trust ratios; a subclass names its state and updates a bucket of parameters.

    Clipping divides the gradients in place, as ``clip_grad_norm_`` does.

    Raises ``InputError`` for complex parameters and sparse gradients. A ``torch.amp.GradScaler`` is understood: the
    gradients are divided by its scale, and a step with infinite ones changes nothing, without asking the device.
    """

    _step_supports_amp_scaling = True
    kernel_divides = False
    """Whether ``update`` divides the gradients by ``bucket.divisor``."""
    moments: tuple[str, ...]
    """State tensors of each parameter, all of its shape."""

    def __init__(self, parameters: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.name = type(self).__name__
        check_options(self.name, defaults)
        super().__init__(parameters, {"adapt": True, **defaults})
        self._room = torch.empty(0)
        self._norm: Tensor | None = None
        self.record = False
        """Whether the next step keeps its trust ratios."""
        self.recorded: list[tuple[Sequence[Tensor], Tensor]] = []
        """Parameters, and their trust ratios on the device, of the last step, if it recorded them."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as in torch. Raises ``InputError`` for a complex or partial parameter."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            check_parameter(self.name, parameter)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up loaded state; its tensors come to lie as the parameters do."""
        super().__setstate__(state)
        self._room, self._norm = torch.empty(0), None
        self.record, self.recorded = False, []
        for parameter, values in self.state.items():
            for name in self.moments:
                if local(values[name]).stride() != local(parameter).stride():
                    values[name] = torch.empty_like(parameter).copy_(values[name])
            if "step" in values:
                values["step"] = torch.as_tensor(values["step"], dtype=torch.float32).to(parameter.device)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; ``closure`` computes the loss again, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.recorded, self._norm = [], None
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        if found_inf is not None and found_inf.device.type == "cpu":
            if found_inf > 0:
                return loss
            found_inf = None
        parts = [(group, bucket) for group in self.param_groups for bucket in self.buckets(group, found_inf)]
        everything = [bucket for _, bucket in parts]
        divisors = [self.divisor(group, everything) for group, _ in parts]  # all before any gradient changes
        for bucket, divisor in zip(everything, divisors, strict=True):
            self.divide(bucket, divisor)
        for group, bucket in parts:
            ratios = self.update(group, bucket)
            if self.record:
                self.recorded.append((bucket.parameters, ratios))
        self._room = torch.empty(0)
        return loss

    def buckets(self, group: dict[str, Any], found_inf: Tensor | None) -> Iterator[Bucket]:
        """The parameters of the group that have a gradient, in parts that are updated together."""
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = self.new_state(parameter)
        for part in buckets(parameters):
            together = parameters[part]
            yield Bucket(
                parameters=together,
                here=[local(parameter) for parameter in together],
                gradients=[gradient(self.name, parameter) for parameter in together],
                states=[self.state[parameter] for parameter in together],
                found_inf=None if found_inf is None else found_inf.to(together[0].device),
            )

    def scaled(self, tensors: list[Tensor], factor: float) -> list[Tensor]:
        """``factor`` times each tensor, in memory that lasts until the next call.

        A processor writes faster into memory that it has just used, so all buckets of a step share one piece.
        """
        if tensors[0].device.type != "cpu":
            return list(torch._foreach_mul(tensors, factor))
        needed = sum(tensor.numel() for tensor in tensors)
        if self._room.numel() < needed or self._room.dtype != tensors[0].dtype:
            self._room = torch.empty(needed, dtype=tensors[0].dtype)
        parts = torch.split(self._room[:needed], [tensor.numel() for tensor in tensors])
        views = [
            part.as_strided(like.shape, like.stride(), part.storage_offset())
            for part, like in zip(parts, tensors, strict=True)
        ]
        for view, tensor in zip(views, tensors, strict=True):
            torch.mul(tensor, factor, out=view)
        return views

    def new_state(self, parameter: Tensor) -> dict[str, Any]:
        """State of a parameter before its first step."""
        return {name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in self.moments}

    def divisor(self, group: dict[str, Any], parts: Sequence[Bucket]) -> Tensor | None:
        """What the gradients are divided by: the scaler's scale, and the clipping of the norm over all groups."""
        scale: Tensor | None = getattr(self, "grad_scale", None)
        if not group["max_grad_norm"]:
            return scale
        if self._norm is None:
            self._norm = global_norm([(bucket.parameters[0], bucket.gradients) for bucket in parts])
        if scale is None:
            return clip_divisor(self._norm, group["max_grad_norm"])
        return clip_divisor(self._norm / scale, group["max_grad_norm"]) * scale

    def divide(self, bucket: Bucket, divisor: Tensor | None) -> None:
        """Divide the gradients, or leave it to the kernel."""
        if divisor is None or (divisor.device.type == "cpu" and divisor == 1):
            return
        if self.kernel_divides and divisor.dtype == torch.float32:
            bucket.divisor = divisor.to(bucket.here[0].device)
        else:
            torch._foreach_div_(bucket.gradients, divisor.to(bucket.here[0]))

    @abstractmethod
    def update(self, group: dict[str, Any], bucket: Bucket) -> Tensor:
        """Update the parameters of ``bucket``; returns their trust ratios, (parameters,), on the device."""


@dataclass
class Bucket:
    """Parameters that are updated together, what of them and of their gradients lies on this rank, and their state."""

    parameters: Sequence[Tensor]
    here: list[Tensor]
    gradients: list[Tensor]
    states: list[dict[str, Any]]
    found_inf: Tensor | None
    """Above 0, on the device, where the step must change nothing; ``None`` where that can't be."""
    divisor: Tensor | None = None
    """What the gradients are still to be divided by, float32 on the device; ``None`` where that is done."""

    def state(self, name: str) -> list[Tensor]:
        """State ``name`` of each parameter, the part on this rank."""
        return [local(state[name]) for state in self.states]

    def norms(self, *parts: Sequence[Tensor]) -> Iterator[Tensor]:
        """Norms of whole tensors from the parts on this rank, one (parameters,) for each of ``parts``."""
        squares = torch.stack([squared_norms(tensors) for tensors in parts])
        return iter(summed_over_shards(squares, self.parameters[0]).sqrt_().unbind())

    def ones(self) -> Tensor:
        """A one for each parameter, on the device."""
        return torch.ones(len(self.here), dtype=norm_dtype(self.here[0]), device=self.here[0].device)


def add_scaled(targets: list[Tensor], tensors: list[Tensor], factors: Tensor) -> None:
    """Add ``factors[i] * tensors[i]`` to each of ``targets``; ``tensors`` are the caller's to lose."""
    if targets[0].device.type == "cpu":
        for target, tensor, factor in zip(targets, tensors, factors.tolist(), strict=True):
            target.add_(tensor, alpha=factor)
        return
    torch._foreach_mul_(tensors, list(factors.to(tensors[0].dtype).unbind()))
    torch._foreach_add_(targets, tensors)


def check_options(name: str, options: dict[str, Any]) -> None:
    """Raise ``InputError`` for an option out of its range."""
    for key in ("momentum", "betas"):
        values = options.get(key, ())
        for value in values if isinstance(values, (tuple, list)) else (values,):
            if not 0 <= value < 1:
                raise InputError(f"{name}: {key} ({values}) must be at least 0 and below 1")
    for key in ("lr", "eps", "weight_decay", "trust_coefficient", "max_grad_norm"):
        value = options.get(key, 0.0)
        if not isinstance(value, Tensor) and value < 0:
            raise InputError(f"{name}: {key} ({value}) must be at least 0")
    low, high = options.get("trust_bounds", (0.0, 1.0))
    if not 0 <= low <= high:
        raise InputError(f"{name}: trust_bounds ({low}, {high}) must be two numbers from 0 on, the smaller one first")
