"""Batch norm over the samples of neighbouring processes, on any backend; torch's SyncBatchNorm is for CUDA only.

Each process sends its count, means and sums of squared deviations, which are merged as in Chan, Golub and LeVeque
(1983), so that parts of any size have the right weight, and large means cost the variances no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from hpcbench.parallel.exposed import UNRECORDED, Recorder, recorded
from hpcbench.parallel.group import Group
from hpcbench.parallel.node_peers import open_peers
from hpcbench.parallel.peers import Peers


class GroupBatchNorm(_BatchNorm):
    """A batch norm whose training statistics are those of all samples of ``peers``; collective in training."""

    def __init__(self, layer: _BatchNorm, peers: Peers) -> None:
        super().__init__(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
        # The optimizer, and anything else that holds them, continues with the same parameters and buffers.
        self._parameters, self._buffers = layer._parameters, layer._buffers
        self.training = layer.training
        self.peers = peers

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (batch, features, ...), normalized. The batch may be empty; if all are, no statistics change."""
        if not self.training:
            return super().forward(x)
        count, mean, deviations = merged_moments(x, self.peers)
        self.track(count, mean, deviations / (count - 1).clamp(min=1))
        variance = deviations / count.clamp(min=1)
        normalize: Callable[..., Tensor] = _Normalize.apply
        return normalize(x, self.weight, self.bias, mean, variance, count, self.eps, self.peers)

    @torch.no_grad()
    def track(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch of ``count``, without waiting for the device."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        some = count > 0
        self.num_batches_tracked.add_(some)
        batches = self.num_batches_tracked.clamp(min=1).to(mean.dtype)
        momentum = 1 / batches if self.momentum is None else self.momentum
        for running, value in ((self.running_mean, mean), (self.running_var, variance)):
            running.add_((value - running) * momentum * some)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of dimensions from two; the layer that this one replaces fitted its model."""


@torch.no_grad()
def merged_moments(x: Tensor, peers: Peers) -> tuple[Tensor, Tensor, Tensor]:
    """Count (), means (features,) and sums of squared deviations (features,) over all peers; collective."""
    features = x.shape[1]
    local = x.new_zeros(2 * features + 1, dtype=torch.promote_types(x.dtype, torch.float32))
    if x.numel() and not x.is_meta:
        local[0] = x.numel() // features
        # torch's kernel for its own batch norm, dozens of times as fast as var_mean where channels are last. Given
        # statistics to update, with momentum 1, it computes in their type.
        room = local.new_zeros(2, features)
        local[1 : features + 1], variance = torch.batch_norm_update_stats(x, room[0], room[1], 1.0)
        local[features + 1 :] = variance * local[0]
    together = peers.stacked(local)
    counts, means, deviations = together[:, :1], together[:, 1 : features + 1], together[:, features + 1 :]
    count = counts.sum()
    mean = (counts * means).sum(0) / count.clamp(min=1)
    return count, mean, (deviations + counts * (means - mean).square()).sum(0)


class _Normalize(torch.autograd.Function):
    """``(x - mean) / sqrt(variance + eps) * weight + bias``, whose gradient goes through the moments of the group."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, count: Tensor,
        eps: float, peers: Peers,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, weight, mean, variance, count)
        ctx.eps, ctx.peers = eps, peers
        # The kernel for evaluation, which uses the statistics that it is given, in any precision and layout.
        return torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        x, weight, mean, variance, count = ctx.saved_tensors
        shape = (1, -1, *[1] * (x.dim() - 2))
        ones = torch.ones_like(mean) if weight is None else weight
        own_weight, own_bias = torch.zeros_like(ones), torch.zeros_like(ones)
        scale = (variance + ctx.eps).rsqrt()
        if x.numel():
            # The kernel for evaluation sums the gradients of weight and bias in one pass. On a CPU it reads the
            # statistics; those of accelerators want the mean and the scale, and fail without them.
            _, own_weight, own_bias = torch.ops.aten.native_batch_norm_backward(
                gradient, x, ones, mean, variance, mean, scale, False, ctx.eps, [False, True, True]
            )
        sums = ctx.peers.all_reduce(torch.stack([own_weight, own_bias]).to(mean.dtype))
        along_weight, along_bias = sums / count.clamp(min=1)
        scaled = scale * ones
        inner = torch.nn.functional.batch_norm(
            x, mean, variance, -scaled * along_weight, -scaled * along_bias, training=False, eps=ctx.eps
        )
        inner.addcmul_(gradient, scaled.to(inner.dtype).view(shape))
        affine = (None, None) if weight is None else (own_weight, own_bias)
        return inner, *affine, None, None, None, None, None


def share_batch_norm(
    model: nn.Module, group: Group, processes: int, timeout_s: float, recorder: Recorder = UNRECORDED
) -> None:
    """Replace each batch norm in ``model`` with one over ``processes`` neighbouring processes; collective.

    Parameters, buffers and their names stay. ``processes`` must divide the size of the group.
    """
    first = group.rank - group.rank % processes
    members = list(range(first, first + processes))
    # Only its members create a group, since at scale there are many groups.
    made = dist.new_group(members, timedelta(seconds=timeout_s), use_local_synchronization=True)
    replace_batch_norm(model, recorded(open_peers(made, group, timeout_s), recorder, "batch_norm"))


def replace_batch_norm(model: nn.Module, peers: Peers) -> None:
    """Replace each batch norm in ``model`` with one over ``peers``."""
    made: dict[nn.Module, GroupBatchNorm] = {}
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):  # named_children leaves out a layer's further names
            if isinstance(layer, _BatchNorm):
                if layer not in made:
                    made[layer] = GroupBatchNorm(layer, peers)
                setattr(parent, name, made[layer])


def shares_batch_norm(model: nn.Module) -> bool:
    """Whether a pass through the model in training waits for other processes."""
    return any(isinstance(module, GroupBatchNorm) for module in model.modules())
