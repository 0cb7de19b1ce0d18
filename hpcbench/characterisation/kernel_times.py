"""Sorts kernels (on a processor: operations) into kinds by their names, and adds up their times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from hpcbench.characterisation.timing import synchronizer

KINDS = (
    ("communication", r"nccl|all_?reduce|gloo"),
    ("optimizer", r"multi_tensor|fused_?(adam|sgd|lamb)|first_pass|second_pass|_foreach_|_amp_"),
    ("pooling", r"pool"),
    ("normalisation", r"batch_?norm|\bbn_|bn_(fw|bw)|layer_?norm|welford"),
    ("copy and layout", r"mem(cpy|set)|copy|nchw_?to_?nhwc|nhwc_?to_?nchw|transpose|catarray|permute|reorder"
                        r"|aten::(clone|contiguous|cat|_to_copy|to|fill_|zero_)$"),
    ("convolution", r"conv|wgrad|dgrad|fprop|implicit_gemm|winograd|im2col|col2im|cudnn"),
    ("matrix product", r"gemm|gemv|nvjet|cutlass|cublas|split_?k|aten::(addmm|mm|bmm|matmul|linear)$"),
    ("loss", r"softmax|nll|mse_loss"),
    ("loss and sums", r"reduce|aten::(sum|mean)$"),
    ("elementwise", r"elementwise|vectorized|triton_|threshold|relu|aten::(mul|add|sub|div|log1p|tanh|where)_?(\.|$)"),
)  # fmt: skip
"""Kinds and patterns of their kernels' names; the first that matches counts."""


def kind_of(name: str) -> str:
    """The kind of a kernel. A fused kernel of the compiler counts as the heaviest of the operations in its name."""
    name = name.lower()
    if name.startswith("triton_") and not name.startswith("triton_tem"):
        name = name.replace("convolution", "")  # its bias, or what comes after it
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), "other")


def activities_of(device: torch.device) -> list[ProfilerActivity]:
    """What torch's profiler records where steps are computed on ``device``."""
    if device.type == "cpu":
        return [ProfilerActivity.CPU]
    return [ProfilerActivity.CPU, getattr(ProfilerActivity, device.type.upper(), ProfilerActivity.PrivateUse1)]


def kernel_times(step: Callable[[], object], device: torch.device, steps: int = 3) -> dict[str, Any]:
    """Milliseconds of a step on ``device`` by kind, the ten longest kernels, and the sum of all.

    On a processor, of operations.
    """
    on_device, synchronize = device.type != "cpu", synchronizer(device)
    synchronize()
    with profile(activities=activities_of(device)) as profiler:
        for _ in range(steps):
            step()
        synchronize()
    times = list(own_times(profiler.key_averages(), on_device))
    kinds: dict[str, float] = {}
    for name, microseconds, _ in times:
        kinds[kind_of(name)] = kinds.get(kind_of(name), 0.0) + microseconds / 1e3 / steps
    longest = sorted(times, key=lambda entry: -entry[1])[:10]
    return {
        "kernel_ms_by_kind": dict(sorted(kinds.items(), key=lambda item: -item[1])),
        "kernel_ms": sum(kinds.values()),
        "longest": [
            {"name": name[:120], "kind": kind_of(name), "ms": spent / 1e3 / steps, "calls": count / steps}
            for name, spent, count in longest
        ],
    }


def own_times(events: Iterable[Any], on_device: bool) -> Iterable[tuple[str, float, int]]:
    """Name, microseconds and calls of kernels; ranges that the profiler puts around them are left out."""
    for event in events:
        annotation = getattr(event, "is_user_annotation", False) or re.match(r"Optimizer\.|ProfilerStep", event.key)
        if annotation or (event.device_type == DeviceType.CPU) == on_device:
            continue
        spent = float(event.self_device_time_total if on_device else event.self_cpu_time_total)
        if spent > 0:
            yield event.key, spent, int(event.count)
