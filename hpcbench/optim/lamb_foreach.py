"""LAMB on any device with torch's operations on lists of tensors, where Triton cannot work."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcbench.optim.bucket import Bucket
from hpcbench.optim.lamb_host import adam
from hpcbench.optim.tensors import add_scaled


def directions(bucket: Bucket) -> tuple[list[Tensor], Tensor]:
    """New moments; returns u of each layer and the squared norms of w and u on this rank, (2, parameters)."""
    updates = list(torch._foreach_mul(bucket.weights, bucket.group["weight_decay"]))
    exp_avgs, exp_avg_sqs = bucket.moments
    adam(bucket, updates, bucket.gradients, exp_avgs, exp_avg_sqs, [state["step"] for state in bucket.states])
    return updates, bucket.squared_norms(bucket.weights, updates)


def apply(bucket: Bucket, updates: list[Tensor], factors: Tensor) -> None:
    """Add ``factors``, (parameters,), times u of each layer to its weights."""
    add_scaled(bucket.weights, updates, factors)
