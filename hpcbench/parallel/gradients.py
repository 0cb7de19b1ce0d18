"""Sums gradients over ranks in buckets, during the backward pass."""

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

    Parameters are put into buckets in reverse order, since the last layers have their gradients first; ``backward``
    off keeps their own order, in which the first bucket is the last to be complete. Gradients are sent and summed as
    ``wire_dtype``, or in their own type if it is unset. While ``enabled`` (set it only on the last micro-batch of a
    step) a bucket is sent as soon as its last gradient is accumulated; buckets are always launched in the same order,
    so that ranks agree on it whatever their graphs.
    ``finish`` launches what is left (a parameter without a gradient counts as zero, so that a rank without samples or
    an unused parameter delays nobody) and waits. The caller scales its loss by local samples / global samples, so that
    the sum is the gradient of the mean over the global batch.

    After ``finish`` each ``grad`` is a view into its bucket; zero or drop it before the next backward pass.
    With one process nothing is sent, and ``finish`` gives zeros to parameters without a gradient. ``collectives``
    counts the all-reduces launched so far. For the recorder, a bucket arrives when it is launched, and ``finish`` waits
    for it; packing gradients is not recorded.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], group: Group, bucket_bytes: int, recorder: Recorder = UNRECORDED,
        *, backward: bool = True, wire_dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        self._group = group
        self._channel = recorder.channel("gradients", group.latest)
        self.enabled = False
        self._next = 0
        self.collectives = 0
        self._buckets: list[_Bucket] = []
        self._handles: list[Any] = []
        self._parameters = _in_order(parameters, backward=backward)
        if group.world_size == 1:
            return
        for members in _partition(self._parameters, bucket_bytes):
            bucket = _Bucket(members, wire_dtype)
            self._buckets.append(bucket)
            for parameter in members:
                hook = self._hook(bucket)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def place_gradients(self) -> None:
        """Give each parameter a gradient of zeros, in the memory in which ``finish`` hands out the sum.

        A captured pass needs this before its first run: it adds to the memory that its gradients have at the capture.
        """
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.hand_out()

    def finish(self) -> None:
        """Launch the remaining buckets, wait for all, and hand out the sums. Call it once per optimizer step."""
        if not self._buckets:
            zero_missing(self._parameters)
        while self._next < len(self._buckets):
            self._launch_next()
        for bucket in self._buckets:
            bucket.wait()
        self._next = 0

    def record_norms(self) -> AbstractContextManager[None]:
        """Record nothing: every rank computes the norms of whole tensors, and sends nothing for them."""
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
    """Some parameters of one dtype and device, and the flat buffer in which their gradients are sent."""

    def __init__(self, parameters: list[nn.Parameter], wire_dtype: torch.dtype | None = None) -> None:
        self.parameters = parameters
        self.wire_dtype = wire_dtype or parameters[0].dtype
        self.pending = len(parameters)
        self.flat = torch.zeros(
            sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=parameters[0].device
        )
        self.wire = self.flat
        """What is sent: the buffer itself, or a rounded copy of it."""
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
        self.wire = self.flat.to(self.wire_dtype)
        self.message = channel.message()
        self.work = group.all_reduce_sum_async(self.wire)

    def wait(self) -> None:
        if self.work is not None:
            with self.message:
                self.work.wait()
            if self.wire is not self.flat:
                self.flat.copy_(self.wire)
        self.work = None
        self.pending = len(self.parameters)
        self.hand_out()

    def hand_out(self) -> None:
        # The sum is handed out as a view, which spares a copy of all gradients.
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


def zero_missing(parameters: Iterable[nn.Parameter]) -> None:
    """Give zeros to each parameter without a gradient, as the sum over ranks does.

    An optimizer passes over a parameter without a gradient, but weight decay and momentum move one whose gradient is
    zero. Without this, such parameters would depend on the number of processes.
    """
    for parameter in parameters:
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


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
    """Bytes of the messages that carry the gradients of ``parameters``, in the order in which they are sent."""
    buckets = _partition(_in_order(parameters), bucket_bytes)
    return [sum(parameter.nbytes for parameter in members) for members in buckets]


def _in_order(parameters: Iterable[nn.Parameter], *, backward: bool = True) -> list[nn.Parameter]:
    """The parameters that have gradients, each once, the last layers first unless ``backward`` is off."""
    wanted = [p for p in dict.fromkeys(parameters) if p.requires_grad]
    return wanted[::-1] if backward else wanted


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
    """Views of ``flat`` with the shapes of the parameters, and with their strides if these are dense."""
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
