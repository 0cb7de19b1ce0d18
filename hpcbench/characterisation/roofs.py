"""Roofs of the device of a rank, measured by all ranks at once: products, memory, caches, and what a launch costs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TypeVar

import torch

from hpcbench.characterisation.model import COMPUTED_IN, Roof
from hpcbench.characterisation.timing import timed
from hpcbench.parallel.group import Group

T = TypeVar("T")

MATRIX = {"cpu": 1024}
ACCELERATOR_MATRIX = 8192
TRIAD_BYTES = {"cpu": 64 << 20}
"""Bytes of each of the three arrays; far more than a core's part of the caches."""
ACCELERATOR_TRIAD_BYTES = 1 << 30
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def device_roofs(device: torch.device, precision: str, group: Group, budget_s: float = 0.3) -> list[Roof]:
    """Measure each roof for about ``budget_s``; the median over ranks, which all measure at once. Collective."""
    names = dict.fromkeys(["float32", COMPUTED_IN[precision]])
    roofs = [compute_roof(device, name, budget_s) for name in barred(names, group)]
    if device.type == "cuda":
        group.barrier()
        roofs.append(tensor_float_roof(device, budget_s))
    group.barrier()
    memory = memory_roof(device, budget_s)
    roofs.append(memory)
    if device.type == "cpu":
        caches = [cache_roof(name, size, budget_s) for name, size in barred(cache_sizes(), group)]
        # If the result is no faster than memory, the cache was not what was measured.
        roofs += [roof for roof in caches if roof.value > memory.value]
    roofs.append(launch_roof(device, budget_s))
    return over_ranks(roofs, group)


def barred(values: Iterable[T], group: Group) -> Iterator[T]:
    """Yield each of ``values`` once all ranks have arrived."""
    for value in values:
        group.barrier()
        yield value


def over_ranks(roofs: list[Roof], group: Group) -> list[Roof]:
    """The median over ranks of each roof that all of them have; collective."""
    everyone = group.all_gather_object(roofs)
    medians = []
    for roof in everyone[0]:
        same = [
            rank_roof
            for rank in everyone
            for rank_roof in rank
            if (rank_roof.resource, rank_roof.name) == (roof.resource, roof.name)
        ]
        if len(same) == len(everyone):
            medians.append(
                Roof(roof.resource, roof.name, median(rank_roof.value for rank_roof in same), roof.unit, roof.how)
            )
    return medians


def compute_roof(device: torch.device, name: str, budget_s: float) -> Roof:
    """Operations per second of the product of two square matrices, without TF32."""
    size = MATRIX.get(device.type, ACCELERATOR_MATRIX)
    with tensor_float(allowed=False):
        seconds = product_s(device, DTYPES[name], size, budget_s)
    return Roof("compute", name, 2 * size**3 / seconds, "FLOP/s", f"product of {size} x {size} matrices of {name}")


def tensor_float_roof(device: torch.device, budget_s: float) -> Roof:
    """The same for float32 matrices in TF32, which CUDA devices have."""
    size = ACCELERATOR_MATRIX
    with tensor_float(allowed=True):
        seconds = product_s(device, torch.float32, size, budget_s)
    return Roof("compute", "tf32", 2 * size**3 / seconds, "FLOP/s", f"product of {size} x {size} matrices in TF32")


def product_s(device: torch.device, dtype: torch.dtype, size: int, budget_s: float) -> float:
    """Seconds of a product of random matrices: zeros take less power, and are faster on some devices."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return timed(lambda: torch.mm(left, right, out=out), device, budget_s)


@contextmanager
def tensor_float(*, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in products on CUDA devices."""
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def triad_rate(device: torch.device, size: int, budget_s: float) -> float:
    """Bytes per second of a = b + s c with arrays of ``size`` bytes, of which two are read and one is written."""
    b, c = (torch.rand(max(1, size // 4), device=device) for _ in range(2))
    a = torch.empty_like(b)
    return 3 * a.nbytes / timed(lambda: torch.add(b, c, alpha=3.0, out=a), device, budget_s)


def memory_roof(device: torch.device, budget_s: float) -> Roof:
    """The triad of arrays that no cache holds."""
    size = TRIAD_BYTES.get(device.type, ACCELERATOR_TRIAD_BYTES)
    return Roof("memory", "memory", triad_rate(device, size, budget_s), "B/s", f"triad of 3 x {size >> 20} MiB")


def cache_roof(name: str, size: int, budget_s: float) -> Roof:
    """The triad of arrays that together fill half of a cache of ``size`` bytes."""
    rate = triad_rate(torch.device("cpu"), size // 6, budget_s)
    return Roof("cache", name, rate, "B/s", f"triad in half of {size >> 10} KiB, all threads of a rank")


def cache_sizes(folder: Path = CACHES, threads: int | None = None) -> list[tuple[str, int]]:
    """Caches of level 2 and up, with the bytes that a rank's threads have together; empty where unknown.

    Level 1 is too small to be distinguished from the cost of a call.
    """
    threads = threads or torch.get_num_threads()
    caches = []
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size, sharing = ((index / name).read_text().strip() for name in
                                          ("level", "type", "size", "shared_cpu_list"))  # fmt: skip
        except OSError:
            continue
        if kind != "Instruction" and int(level) > 1 and size.endswith("K"):
            together = min(processors_of(sharing), os.cpu_count() or 1)
            caches.append((f"L{level}", int(size[:-1]) * 1024 * max(1, threads // max(1, together))))
    return caches


def processors_of(text: str) -> int:
    """How many processors a list such as ``0-3,8`` names."""
    ends = [part.partition("-") for part in text.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def launch_roof(device: torch.device, budget_s: float) -> Roof:
    """Seconds that an operation on one number takes: the least cost of any operation."""
    one = torch.zeros(1, device=device)
    return Roof("launch", "launch", timed(lambda: one.add_(1.0), device, budget_s), "s", "adding to one number")
