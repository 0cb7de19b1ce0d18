"""Runs the work on a batch as one captured graph, which saves the host's work for each kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from staging.errors import InputError

WARMUP_STEPS = 3
"""Eager steps before the capture, in which libraries choose kernels and gradients get their final addresses."""

Step = Callable[..., Tensor]
"""A function that takes only tensors and returns one, such as ``step(inputs, target) -> loss``."""


class GraphedStep:
    """Runs ``step(*tensors) -> Tensor`` eagerly a few times, then captures and replays it.

    The tensors are copied into ones that stay in place. Everything else that the step reads or writes (parameters,
    state, rates) must also stay in place: plain numbers keep the value that they had at the capture. If the step adds
    gradients, the caller zeroes them and never drops them; ``WholeStep`` does both inside. Batches of another shape,
    such as the last of an epoch, run eagerly; a larger batch than before starts over. Raises ``InputError`` if the
    device does not support graphs.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self.module: Any = torch.get_device_module(device)
        if not hasattr(self.module, "CUDAGraph"):
            raise InputError(f"train.cuda_graph needs a device that captures graphs, not {device.type}; set it false")
        self.step = step
        self.start(())

    def start(self, shapes: tuple[torch.Size, ...]) -> None:
        """Start over, for batches of these shapes."""
        self.shapes, self.done = shapes, 0
        self.graph: Any = None
        self.inputs: list[Tensor] = []
        self.result: Tensor | None = None

    def __call__(self, *tensors: Tensor) -> Tensor:
        """What the step returns for these tensors, in memory of its own."""
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes != self.shapes and numel(shapes) > numel(self.shapes):
            self.start(shapes)
        if shapes != self.shapes:
            return self.step(*tensors)
        if self.graph is None and self.done < WARMUP_STEPS:
            return self.warm_up(*tensors)
        if self.graph is None:
            self.capture(*tensors)
        else:
            for held, tensor in zip(self.inputs, tensors, strict=True):
                held.copy_(tensor, non_blocking=True)
        self.graph.replay()
        assert self.result is not None
        return self.result.clone()

    def warm_up(self, *tensors: Tensor) -> Tensor:
        """Run an eager step on a separate stream, as capturing requires: autograd remembers where a step ran."""
        self.done += 1
        main, side = self.module.current_stream(), self.module.Stream()
        side.wait_stream(main)
        with self.module.stream(side):
            result = self.step(*tensors)
        main.wait_stream(side)
        return result

    def capture(self, *tensors: Tensor) -> None:
        """Record the step; recording computes nothing, so the caller then replays it for the same batch."""
        self.inputs = [tensor.clone() for tensor in tensors]
        self.module.synchronize()
        graph = self.module.CUDAGraph()
        with self.module.graph(graph, **self.capture_options()):
            self.result = self.step(*self.inputs)
        self.graph = graph

    def capture_options(self) -> dict[str, str]:
        """Raise errors only for calls of this thread, since the loader's thread may pin memory during the capture."""
        known = inspect.signature(self.module.graph).parameters
        return {"capture_error_mode": "thread_local"} if "capture_error_mode" in known else {}


def numel(shapes: tuple[torch.Size, ...]) -> int:
    """Elements of all tensors of these shapes."""
    return sum(shape.numel() for shape in shapes)
