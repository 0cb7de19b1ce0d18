"""Forward and backward pass as one captured graph, which spares the host's work for every kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from staging.errors import InputError

WARMUP_STEPS = 3
"""Eager steps before the capture: libraries choose their kernels, and gradients get their final place in memory."""

Step = Callable[[Tensor, Tensor], Tensor]


class GraphedStep:
    """Runs ``step(inputs, target) -> loss`` (forward and backward) eagerly a few times, then captures and replays it.

    Inputs are copied into tensors that stay in place. Gradients must stay in place too: the caller zeroes them and
    never drops them. All batches have one shape. The device must support graphs; otherwise ``InputError``.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self.module: Any = torch.get_device_module(device)
        if not hasattr(self.module, "CUDAGraph"):
            raise InputError(f"train.cuda_graph needs a device that captures graphs, not {device.type}; set it false")
        self.step = step
        self.done = 0
        self.graph: Any = None

    def __call__(self, inputs: Tensor, target: Tensor) -> Tensor:
        """The loss of one batch; its gradients are added to the parameters' (zero before the call)."""
        if self.graph is not None:
            self.inputs.copy_(inputs, non_blocking=True)
            self.target.copy_(target, non_blocking=True)
            self.graph.replay()
            return self.loss.clone()
        if self.done < WARMUP_STEPS:
            return self.warm_up(inputs, target)
        self.capture(inputs, target)
        return self(inputs, target)

    def warm_up(self, inputs: Tensor, target: Tensor) -> Tensor:
        """An eager step on a stream of its own, as capturing asks for: autograd remembers where a step ran."""
        self.done += 1
        main, side = self.module.current_stream(), self.module.Stream()
        side.wait_stream(main)
        with self.module.stream(side):
            loss = self.step(inputs, target)
        main.wait_stream(side)
        return loss

    def capture(self, inputs: Tensor, target: Tensor) -> None:
        """Record the step; recording computes nothing, so that the caller replays it for the same batch."""
        self.inputs, self.target = inputs.clone(), target.clone()
        self.module.synchronize()
        graph = self.module.CUDAGraph()
        with self.module.graph(graph, **self.capture_options()):
            self.loss = self.step(self.inputs, self.target)
        self.graph = graph

    def capture_options(self) -> dict[str, str]:
        """Errors only for calls of this thread: the loader's thread pins memory meanwhile, which may go on."""
        known = inspect.signature(self.module.graph).parameters
        return {"capture_error_mode": "thread_local"} if "capture_error_mode" in known else {}
