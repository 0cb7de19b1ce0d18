"""The messages of sharded parameters: FSDP2's gathers, scatters and sums, sent here so that a recorder sees them.

On the host FSDP2 waits where it sends, so that all communication is exposed. On an accelerator it sends on streams of
its own, and the exposed part is the time that the compute stream waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from hpcbench.parallel.exposed import Arrivals, Channel, Recorder

# Renamed in torch 2.13.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class ShardMessages:
    """Sends for all units of a model, among the processes ``shards`` that have its parts.

    ``copies`` are the processes that have the same part as this one; gradients are also summed over them.
    """

    def __init__(self, shards: Any, copies: Any | None, recorder: Recorder, *, on_host: bool) -> None:
        self.on_host, self.copies = on_host, copies
        self.channel = recorder.channel("sharding", latest_among(shards))
        self.copies_channel = recorder.channel("sharding", latest_among(copies)) if copies is not None else None
        self.reductions: list[AbstractContextManager[None]] = []
        """Reductions of all units, in flight on accelerator streams; the end of a backward pass waits for the last."""

    def take_over(self, module: FSDPModule) -> None:
        """Take over the messages of ``module``, a unit."""
        gather = _Gather(self)
        module.set_custom_all_gather(gather)  # type: ignore[arg-type]
        module.set_custom_reduce_scatter(_Scatter(self))  # type: ignore[arg-type]
        if self.copies is not None:
            module.set_all_reduce_hook(self.sum_copies)
        if self.on_host:
            return
        state: Any = module._get_fsdp_state()
        for unit in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
            if unit is not None:
                unit.wait_for_unshard = waiting_for(unit.wait_for_unshard, gather.sent)
                unit.finalize_backward = waiting_for(unit.finalize_backward, self.reductions)

    def sum_copies(self, gradients: Tensor) -> None:
        """Sum a part of the gradients over the ranks that have the same part."""
        assert self.copies_channel is not None
        self.send(self.copies_channel, self.reductions, lambda: dist.all_reduce(gradients, group=self.copies))

    def send(self, channel: Channel, sent: list[AbstractContextManager[None]], collective: Callable[[], Any]) -> Any:
        """Send and, on the host, wait; on an accelerator, add the message to ``sent``, for whoever waits."""
        message = channel.message()
        if self.on_host:
            with message:
                return collective()
        sent.append(message)
        return collective()


class _Buffers:
    """Allocates the buffers of messages, as FSDP2 requires."""

    def __init__(self, messages: ShardMessages) -> None:
        self.messages = messages
        self.sent: list[AbstractContextManager[None]] = []

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """An empty buffer of ``size``."""
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Buffers):
    """Gathers the parameters of a unit."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        return self.messages.send(
            self.messages.channel,
            self.sent,
            lambda: _all_gather(output_tensor, input_tensor, group=group, async_op=async_op),
        )


class _Scatter(_Buffers):
    """Sums the gradients of a unit; every rank gets its part of the sum."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        return self.messages.send(
            self.messages.channel,
            self.messages.reductions,
            lambda: _reduce_scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op),
        )


def waiting_for(wait: Callable[[], None], sent: list[AbstractContextManager[None]]) -> Callable[[], None]:
    """``wait``, in which the compute stream waits for the last message sent, and so for all of them."""

    def inside() -> None:
        if not sent:
            wait()
            return
        with sent[-1]:
            wait()
        sent.clear()

    return inside


def latest_among(processes: Any) -> Arrivals:
    """``Arrivals`` of messages that all of ``processes`` wait for."""

    def latest(arrivals: Tensor) -> Tensor:
        dist.all_reduce(arrivals, op=dist.ReduceOp.MAX, group=processes)
        return arrivals.unsqueeze(0)

    return latest
