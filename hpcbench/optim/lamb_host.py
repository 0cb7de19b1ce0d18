"""LAMB on a CPU, one piece of the weights at a time, so that what a piece needs is read from memory once.

torch's fused Adam kernel computes the moments and the update u: a step with rate -1 turns a tensor that holds
``weight_decay * w`` into u. So the bytes moved are those of AdamW, and about half as many again for u and for w.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.tensors import norm_dtype, sums_of_squares

LATE = 1e9
"""A step at which no bias is left to correct: beta^LATE is 0."""


def directions(bucket: Bucket, room: Tensor) -> Tensor:
    """New moments, and u of each layer in ``room``; returns squared norms of w and u on this rank, (2, parameters)."""
    decay = bucket.group["weight_decay"]
    squares = [[0.0] * len(bucket.weights) for _ in range(2)]
    parts = zip(
        bucket.pieces(), bucket.cut_weights(), bucket.cut(bucket.gradients), *bucket.cut_moments(),
        bucket.cut_room(room), strict=True,
    )  # fmt: skip
    steps = [state["step"] for state in bucket.states]
    for piece, weights, gradients, first, second, updates in parts:
        for weight, update in zip(weights, updates, strict=True):
            torch.mul(weight, decay, out=update)
        adam(bucket, updates, gradients, first, second, [steps[layer] for layer, _, _ in piece])
        for sums, tensors in zip(squares, (weights, updates), strict=True):
            for (layer, _, _), square in zip(piece, sums_of_squares(tensors), strict=True):
                sums[layer] += square
    return torch.tensor(squares, dtype=norm_dtype(bucket.weights[0]))


def apply(bucket: Bucket, room: Tensor, factors: Tensor) -> None:
    """Add ``factors``, (parameters,), times u of each layer to its weights."""
    scalars = factors.tolist()
    parts = zip(bucket.pieces(), bucket.cut_weights(), bucket.cut_room(room), strict=True)
    for piece, weights, updates in parts:
        for (layer, _, _), weight, update in zip(piece, weights, updates, strict=True):
            weight.add_(update, alpha=scalars[layer])


def adam(
    bucket: Bucket,
    updates: list[Tensor],
    gradients: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    steps: list[Tensor],
) -> None:
    """Adam's step with rate -1 on ``updates``, with torch's fused kernel; its weight decay is not used."""
    group = bucket.group
    if not group["bias_correction"]:
        steps = [torch.full_like(steps[0], LATE)] * len(steps)
    beta1, beta2 = group["betas"]
    # The kernel averages; the sum is the average divided by 1 - beta1.
    rate = 1.0 if group["grad_averaging"] else 1 / (1 - beta1)
    torch._fused_adam_(
        updates, gradients, exp_avgs, exp_avg_sqs, [], steps, lr=-rate, beta1=beta1, beta2=beta2, weight_decay=0.0,
        eps=group["eps"], amsgrad=False, maximize=False, grad_scale=bucket.divisor, found_inf=bucket.found_inf,
    )  # fmt: skip
