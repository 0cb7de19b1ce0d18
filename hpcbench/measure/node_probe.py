"""A short measurement of the speed of every rank before a run: a matrix product, and an all-reduce among all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from hpcbench.parallel.group import Group

REPEATS = 7
SIZE = {"cpu": 768}
"""Rows and columns of the matrices, by kind of device."""
ACCELERATOR_SIZE = 8192
REDUCED_BYTES = 16 << 20


@dataclass(frozen=True)
class ProbeResult:
    """What one rank measured: medians over some repeats, without the first."""

    gemm_dtype: str
    """Type of the matrices: ``float32``, or ``bfloat16`` on an accelerator."""
    gemm_flops: float
    """Floating-point operations per second of their product."""
    all_reduce_s: float | None
    """Seconds of an all-reduce of 16 MiB over all ranks; unset for a single rank."""


def product_type(device_type: str) -> str:
    """The type of the matrices on a device of this type, whatever a run trains in."""
    return "float32" if device_type == "cpu" else "bfloat16"


def probe(group: Group, device: torch.device) -> ProbeResult:
    """Measure; collective."""
    import torch

    accelerated = device.type != "cpu"
    size = ACCELERATOR_SIZE if accelerated else SIZE["cpu"]
    kind: torch.dtype = getattr(torch, product_type(device.type))
    left = torch.randn(size, size, device=device).to(kind)
    gemm_s = timed(lambda: torch.mm(left, left), device)
    buffer = torch.zeros(REDUCED_BYTES // 4, device=device)
    reduce_s = None
    if group.world_size > 1:
        reduce_s = timed(lambda: group.all_reduce_sum(buffer), device, group.barrier)
    return ProbeResult(str(kind).removeprefix("torch."), 2.0 * size**3 / gemm_s, reduce_s)


def timed(work: Callable[[], object], device: torch.device, before: Callable[[], None] = lambda: None) -> float:
    """Return the median seconds of ``work``, until it has ended on the device."""
    import torch

    def finish() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    seconds = []
    for _ in range(REPEATS + 1):
        before()
        finish()
        started = time.perf_counter()
        work()
        finish()
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])
