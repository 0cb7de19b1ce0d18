"""What LARS and LAMB share: a rate for each layer from the norms of its weights and of its update.

A step never waits for an accelerator: norms, trust ratios and the scaler's verdict stay there, so that the step can be
captured in a graph. Groups may set ``adapt`` false (trust ratio 1). Each parameter is one layer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.checks import check_groups, check_method, check_options, check_parameter, check_state
from hpcbench.optim.clip import clip_divisor
from hpcbench.optim.tensors import (
    HAS_TRITON,
    UNBOUNDED,
    bucket_size,
    buckets,
    global_norm,
    lay_out,
    local,
    squared_norms,
)
from staging.errors import InputError


class LayerwiseOptimizer(Optimizer):
    """Base of the optimizers with trust ratios; a subclass names its state and updates a bucket of parameters.

    Clipping may divide the gradients in place, as ``clip_grad_norm_`` does, or leave them as they are.

    Options out of range, parameters that are complex or have gaps in memory, sparse gradients and the state of another
    optimizer raise ``InputError``. Copies (``deepcopy``, ``pickle``) take bit-identical steps.

    ``torch.amp.GradScaler`` is supported: the gradients are divided by its scale, and a step with infinite gradients
    changes nothing, without asking the device.
    """

    _step_supports_amp_scaling = True
    kernel_divides = False
    """Whether ``update`` divides the gradients by ``bucket.divisor``."""
    moments: tuple[str, ...]
    """Names of the state tensors of each parameter, which have its shape."""
    counts: tuple[str, ...] = ()
    """Names of the state of each parameter that counts its steps."""
    method: tuple[str, ...] = ()
    """Options that, on or off, make another optimizer; a state with another choice is refused."""

    def __init__(self, parameters: Iterable[Any], defaults: dict[str, Any]) -> None:
        check_options(self.named(defaults), defaults)
        super().__init__(parameters, {"adapt": True, **defaults})
        self._start_over()

    def _start_over(self) -> None:
        """Forget what persists between steps, except the state."""
        self._key: list[tuple[int, int, int]] = []
        self._buckets: list[Bucket] = []
        self._room = torch.empty(0)
        self.elements = 0
        """Elements on this rank of all weights that had a gradient in the last step."""
        self._norm: Tensor | None = None
        self.record = False
        """Whether the next step keeps its trust ratios."""
        self.recorded: list[tuple[Sequence[Tensor], Tensor]] = []
        """Parameters of the last step and their trust ratios, on the device, if it recorded them."""

    @property
    def name(self) -> str:
        """The optimizer's name in messages."""
        return self.named(self.defaults)

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> str:
        """The name in messages of an optimizer of this class with ``options``."""
        return cls.__name__

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as in torch. Raises ``InputError`` for bad options or parameters, and then adds nothing."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            check_options(self.name, group, f" of group {len(self.param_groups) - 1}")
            for parameter in group["params"]:
                check_parameter(self.name, parameter)
        except InputError:
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, as in torch. Raises ``InputError`` for another optimizer's state, and then loads nothing."""
        if not self._optimizer_load_state_dict_pre_hooks:  # a hook may change the state
            check_groups(self.name, state_dict, self.param_groups)
        super().load_state_dict(state_dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a copied or loaded state, with its tensors in the memory layout of the parameters."""
        options = {**self.__dict__, **state}["defaults"]
        name = self.named(options)
        check_state(name, state["state"], state["param_groups"], options, self.moments, self.counts)
        if "param_groups" in self.__dict__:  # a loaded state; a copy has no groups yet
            check_method(name, state["param_groups"], self.param_groups, self.method, self.named)
        super().__setstate__(state)
        self._start_over()
        for parameter, values in self.state.items():
            if values:
                lay_out(parameter, values, self.moments)
                for name in self.counts:
                    count = torch.as_tensor(values[name], dtype=torch.float32)
                    values[name] = count.reshape(()).to(parameter.device)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` computes the loss again, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
            check_options(self.name, group, f" of group {number}")  # the caller may have set them
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

    def compile_loops(self) -> bool:
        """Compile now what the first step would compile on a CPU; returns whether there was anything to compile."""
        return False

    def buckets(self, found_inf: Tensor | None = None) -> list[Bucket]:
        """The parameters that have a gradient, in buckets that are updated together, ready for a step."""
        grouped = [
            (group, [parameter for parameter in group["params"] if parameter.grad is not None])
            for group in self.param_groups
        ]
        for _, parameters in grouped:
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter] = self.new_state(parameter)
        key = [
            (id(group), id(parameter), id(self.state[parameter]))
            for group, parameters in grouped
            for parameter in parameters
        ]
        if key != self._key:
            self._key = key
            self.elements = sum(local(parameter).numel() for _, parameters in grouped for parameter in parameters)
            self._buckets = [
                Bucket(group, members, [self.state[parameter] for parameter in members], self.moments)
                for group, parameters in grouped
                for members in (parameters[part] for part in buckets(parameters, self.bucket_size))
            ]
        for bucket in self._buckets:
            bucket.prepare(self.name, found_inf)
        return self._buckets

    def bucket_size(self, parameter: Tensor) -> int:
        """The most elements in a bucket of parameters such as this one.

        Unbounded where kernels need no memory of their own: one launch of each works on all layers of a kind.
        """
        return UNBOUNDED if HAS_TRITON and parameter.device.type == "cuda" else bucket_size(parameter)

    def room(self, bucket: Bucket, elements: int) -> Tensor:
        """A vector of at least ``elements`` elements, of the bucket's type, whose content lasts until the next call.

        A CPU writes faster to memory that it has just used, so all buckets of all steps share one vector.
        """
        dtype = bucket.weights[0].dtype
        if self._room.numel() < elements or self._room.dtype != dtype:
            self._room = torch.empty(elements, dtype=dtype)
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
            self._norm = global_norm((bucket.parameters[0], self.squared_gradients(bucket)) for bucket in parts)
        if scale is None:
            return clip_divisor(self._norm, group["max_grad_norm"])
        return clip_divisor(self._norm / scale, group["max_grad_norm"]) * scale

    def squared_gradients(self, bucket: Bucket) -> Tensor:
        """The sum of squares of the bucket's gradients on this rank, a scalar on the device."""
        return squared_norms(bucket.gradients).sum()

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


def has_kernels(bucket: Bucket) -> bool:
    """Whether Triton's kernels work on this bucket."""
    if bucket.on_host or not HAS_TRITON:
        return False
    from hpcbench.optim import triton_plan

    return triton_plan.works(bucket)
