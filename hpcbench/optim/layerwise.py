"""What LARS and LAMB share: a rate for each layer from the norms of its weights and of its update.

A step never waits for an accelerator: norms, trust ratios and the scaler's verdict stay there, so that it can be
captured in a graph. Groups may set ``adapt`` false (trust ratio 1). Each parameter is one layer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.clip import clip_divisor
from hpcbench.optim.tensors import buckets, check_parameter, global_norm, local
from staging.errors import InputError


class LayerwiseOptimizer(Optimizer):
    """Base of the optimizers with trust ratios; a subclass names its state and updates a bucket of parameters.

    Clipping may divide the gradients in place, as ``clip_grad_norm_`` does, or leave them as they are.

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
        self._key: list[tuple[int, int, int]] = []
        self._buckets: list[Bucket] = []
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
        self._key, self._buckets, self._room, self._norm = [], [], torch.empty(0), None
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
        parts = self.buckets(found_inf)
        divisors = [self.divisor(bucket.group, parts) for bucket in parts]  # all before any gradient changes
        for bucket, divisor in zip(parts, divisors, strict=True):
            self.divide(bucket, divisor)
        for bucket in parts:
            ratios = self.update(bucket)
            if self.record:
                self.recorded.append((bucket.parameters, ratios))
            bucket.release()
        return loss

    def buckets(self, found_inf: Tensor | None = None) -> list[Bucket]:
        """The parameters that have a gradient, in parts that are updated together, ready for a step."""
        grouped = [
            (group, [parameter for parameter in group["params"] if parameter.grad is not None])
            for group in self.param_groups
        ]
        for _, parameters in grouped:
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter] = self.new_state(parameter)
        key = [(id(group), id(each), id(self.state[each])) for group, parameters in grouped for each in parameters]
        if key != self._key:
            self._key = key
            self._buckets = [
                Bucket(group, each, [self.state[parameter] for parameter in each], self.moments)
                for group, parameters in grouped
                for each in (parameters[part] for part in buckets(parameters))
            ]
        for bucket in self._buckets:
            bucket.prepare(self.name, found_inf)
        return self._buckets

    @property
    def elements(self) -> int:
        """Elements on this rank of all weights that have a gradient."""
        return sum(bucket.elements for bucket in self._buckets)

    def room(self, bucket: Bucket) -> Tensor:
        """A vector of at least the bucket's elements, whose content lasts until the next bucket's.

        A processor writes faster into memory that it has just used, so all buckets of all steps share one piece.
        """
        if self._room.numel() < bucket.elements or self._room.dtype != bucket.weights[0].dtype:
            self._room = torch.empty(max(part.elements for part in self._buckets), dtype=bucket.weights[0].dtype)
        return self._room

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
            bucket.divisor = divisor.to(bucket.weights[0].device)
        else:
            torch._foreach_div_(bucket.gradients, divisor.to(bucket.weights[0]))

    @abstractmethod
    def update(self, bucket: Bucket) -> Tensor:
        """Update the parameters of ``bucket``; returns their trust ratios, (parameters,), on the device."""


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
