"""Summing gradients over ranks in buckets, while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.parallel.exposed import UNRECORDED, Channel, Recorder
from hpcbench.parallel.group import Group, Work


class GradientReducer:
    """All-reduces (SUM) the gradients of ``parameters`` over ``group`` in buckets of about ``bucket_bytes``.

    Parameters are put into buckets in reverse order, since the last layers have their gradients first. While
    ``enabled`` (to be set on the last micro-batch of a step alone) a bucket travels as soon as its last gradient is
    accumulated; buckets are always launched in the same order, so that ranks agree on it whatever their graphs.
    ``finish`` launches what is left (a parameter without a gradient counts as zero, so that a rank without samples and
    an unused parameter hold nobody up) and waits. The caller scales its loss by local samples / global samples, so that
    the sum is the gradient of the mean over the global batch.

    After ``finish`` each ``grad`` is a view into its bucket, to be zeroed or dropped before the next backward pass.
    With one process the reducer does nothing at all. ``collectives`` counts the all-reduces launched so far. A bucket
    arrives when it is launched, and ``finish`` waits for it; gradients are packed outside of what is recorded.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], group: Group, bucket_bytes: int, recorder: Recorder = UNRECORDED
    ) -> None:
        self._group = group
        self._channel = recorder.channel("gradients", group.latest)
        self.enabled = False
        self._next = 0
        self.collectives = 0
        self._buckets: list[_Bucket] = []
        self._handles: list[Any] = []
        if group.world_size == 1:
            return
        for members in _partition(_in_order(parameters), bucket_bytes):
            bucket = _Bucket(members)
            self._buckets.append(bucket)
            for parameter in members:
                hook = self._hook(bucket)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """Launch the buckets that are left, wait for all, and hand out the sums. Called once per optimizer step."""
        while self._next < len(self._buckets):
            self._launch_next()
        for bucket in self._buckets:
            bucket.wait()
        self._next = 0

    def record_norms(self) -> AbstractContextManager[None]:
        """Norms of whole tensors are computed on every rank, and nothing is sent for them."""
        return nullcontext()

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        for handle in self._handles:
            handle.remove()

    def _hook(self, bucket: _Bucket) -> Any:
        def hook(parameter: Tensor) -> None:
            if self.enabled:
                bucket.pending -= 1
                while self._next < len(self._buckets) and self._buckets[self._next].pending <= 0:
                    self._launch_next()

        return hook

    def _launch_next(self) -> None:
        self._buckets[self._next].launch(self._group, self._channel)
        self._next += 1
        self.collectives += 1


class _Bucket:
    """Some parameters of one dtype and device, and the flat buffer in which their gradients travel."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.pending = len(parameters)
        self.flat = torch.zeros(
            sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=parameters[0].device
        )
        self.views = _views(self.flat, parameters)
        self.work: Work | None = None
        self.message: AbstractContextManager[None] = nullcontext()

    def launch(self, group: Group, channel: Channel) -> None:
        for parameter, view in zip(self.parameters, self.views, strict=True):
            gradient = parameter.grad
            if gradient is None:
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr():
                view.copy_(gradient)
        self.message = channel.message()
        self.work = group.all_reduce_sum_async(self.flat)

    def wait(self) -> None:
        if self.work is not None:
            with self.message:
                self.work.wait()
        self.work = None
        self.pending = len(self.parameters)
        # The sum is handed out as a view, which spares a copy of all gradients.
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


def broadcast_state(model: nn.Module, group: Group) -> None:
    """Overwrite parameters and buffers with those of rank 0, one message per dtype and device."""
    if group.world_size == 1:
        return
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
    for tensors in kinds.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        group.broadcast(flat)
        offset = 0
        for tensor in tensors:
            tensor.copy_(flat[offset : offset + tensor.numel()].view(tensor.shape))
            offset += tensor.numel()


def bucket_sizes(parameters: Iterable[nn.Parameter], bucket_bytes: int) -> list[int]:
    """Bytes of the messages in which the gradients of ``parameters`` travel, in their order."""
    buckets = _partition(_in_order(parameters), bucket_bytes)
    return [sum(parameter.nbytes for parameter in members) for members in buckets]


def _in_order(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those that have gradients, each once, the last layers first."""
    return [p for p in dict.fromkeys(parameters) if p.requires_grad][::-1]


def _partition(parameters: list[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Runs of parameters of one dtype and device, closed once they hold ``bucket_bytes``."""
    buckets: list[list[nn.Parameter]] = []
    size = 0
    kind: tuple[torch.dtype, torch.device] | None = None
    for parameter in parameters:
        if not buckets or (parameter.dtype, parameter.device) != kind or size >= bucket_bytes:
            buckets.append([])
            size, kind = 0, (parameter.dtype, parameter.device)
        buckets[-1].append(parameter)
        size += parameter.numel() * parameter.element_size()
    return buckets


def _views(flat: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Views of ``flat`` with the shapes of the parameters, and with their strides where these are dense."""
    views = []
    offset = 0
    for parameter in parameters:
        part = flat[offset : offset + parameter.numel()]
        offset += parameter.numel()
        views.append(part.as_strided(parameter.shape, _dense_strides(parameter), part.storage_offset()))
    return views


def _dense_strides(tensor: Tensor) -> tuple[int, ...]:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return torch.empty(tensor.shape, device="meta").stride()
            expected *= size
    return tensor.stride()
