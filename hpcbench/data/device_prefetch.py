"""Moves batches to the device ahead of the step: copied on a separate stream while the previous step still runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

UNDER_WAY = 2
"""Steps that the device may still have queued when a copy starts: with one it would idle between two steps, and more
only need memory for their batches."""


class DevicePrefetcher:
    """Moves batches (tuples of tensors) to the device, on a separate stream.

    The host queues steps and does not wait for them, so that the next batch is requested, and copied, while the device
    still works on the previous one. That needs pinned memory: from a loader that pins, or with ``pin``, which pins
    the others here. Tensors that are already on the device pass through, as does everything if the device is a CPU. The
    host is in ``device_wait`` while it waits for the device, so that few enough steps are queued; the batch is there by
    then.
    """

    def __init__(
        self, device: torch.device, *, pin: bool = False,
        device_wait: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:  # fmt: skip
        self.device, self.pin, self.device_wait = device, pin, device_wait
        self.module: Any = torch.get_device_module(device) if device.type != "cpu" else None
        self.side: Any = self.module.Stream() if self.module is not None else None

    def __call__(self, batches: Iterable[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
        """The same batches, in the same order, on the device, ready for work on the current stream."""
        if self.module is None:
            yield from batches
            return
        steps: deque[Any] = deque()
        for batch in batches:
            while len(steps) > UNDER_WAY:
                with self.device_wait():
                    steps.popleft().synchronize()
            yield self.moved(batch)
            steps.append(self.module.Event())
            steps[-1].record(self.module.current_stream())

    def moved(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The batch on the device; the current stream waits for the copy, and the host does not."""
        main = self.module.current_stream()
        with self.module.stream(self.side):
            result = tuple(self.copy(tensor) for tensor in batch)
        main.wait_stream(self.side)
        for tensor, source in zip(result, batch, strict=True):
            if tensor is not source:
                # Otherwise the side stream could reuse its memory for the next copy while the step still reads it.
                tensor.record_stream(main)
        return result

    def copy(self, tensor: Tensor) -> Tensor:
        """Copy one tensor; torch keeps pinned memory until the copy out of it is done."""
        if tensor.device.type == self.device.type:
            return tensor
        return (tensor.pin_memory() if self.pin else tensor).to(self.device, non_blocking=True)
