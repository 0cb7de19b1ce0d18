"""Roofs of the device of a rank, measured by all ranks at once: products, memory, caches, and what a launch costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TypeVar

import torch

from hpcbench.characterisation.caches import cache_sizes
from hpcbench.characterisation.model import COMPUTED_IN, TENSOR_FLOAT, Roof
from hpcbench.characterisation.timing import fastest
from hpcbench.parallel.group import Group
from hpcbench.parallel.precision import FAST_BFLOAT16, processor_flags
from staging.storage.space import available_memory

T = TypeVar("T")

MATRIX = {"cpu": 1024}
ACCELERATOR_MATRIX = 8192
TRIAD_BYTES = 64 << 20
"""Bytes of each of the three arrays on a processor, at least."""
BEYOND_CACHE, PART_OF_MEMORY = 2, 8
"""The three arrays together are so many times the largest cache, but at most this part of a rank's free memory."""
ACCELERATOR_TRIAD_BYTES = 1 << 30
FASTER = 1.2
"""A cache has a roof of its own if it is more than this many times as fast as memory."""
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ARM_BFLOAT16 = "bf16"
"""What Linux calls the instructions of an Arm processor that multiply bfloat16."""
AMPERE = 8
"""Major number of the first compute capability with TF32."""


def device_roofs(device: torch.device, precision: str, group: Group, budget_s: float = 0.3) -> list[Roof]:
    """Measure each roof for about ``budget_s``; the median over ranks, which all measure at once. Collective.

    Products are measured in float32, in the type of ``precision``, and in the 16-bit types that the device multiplies.
    """
    names = dict.fromkeys(["float32", COMPUTED_IN[precision], *sixteen_bit(device)])
    roofs = [compute_roof(device, name, budget_s) for name in barred(common(names, group), group)]
    if common([TENSOR_FLOAT] if has_tensor_float(device) else [], group):
        group.barrier()
        roofs.append(tensor_float_roof(device, budget_s))
    caches = dict(cache_sizes()) if device.type == "cpu" else {}
    size = min(group.all_gather_object(triad_bytes(device, caches.values(), free_memory(group))))
    group.barrier()
    memory = memory_roof(device, size, max(caches.values(), default=0), budget_s)
    roofs.append(memory)
    levels = [cache_roof(name, caches[name], budget_s) for name in barred(common(caches, group), group)]
    # Otherwise the cache was not what was measured, or makes no difference.
    roofs += [roof for roof in levels if roof.value > FASTER * memory.value]
    roofs.append(launch_roof(device, budget_s))
    return over_ranks(roofs, group)


def common(names: Iterable[str], group: Group) -> list[str]:
    """The names that all ranks have, in the order of this rank's; collective. All then wait for each other as often."""
    own = list(names)
    everyone = group.all_gather_object(own)
    return [name for name in own if all(name in some for some in everyone)]


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


def sixteen_bit(device: torch.device) -> list[str]:
    """The 16-bit types that the device has instructions or units for, and which it need not emulate."""
    if device.type == "cpu":
        return ["bfloat16"] if (FAST_BFLOAT16 | {ARM_BFLOAT16}) & processor_flags() else []
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return ["float16"]
    return ["bfloat16", "float16"]


def has_tensor_float(device: torch.device) -> bool:
    """Whether the device multiplies float32 matrices in TF32: NVIDIA's do, from Ampere on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device)[0] >= AMPERE


def compute_roof(device: torch.device, name: str, budget_s: float) -> Roof:
    """Operations per second of the product of two square matrices, without TF32."""
    size = MATRIX.get(device.type, ACCELERATOR_MATRIX)
    with tensor_float(allowed=False):
        seconds = product_s(device, DTYPES[name], size, budget_s)
    return Roof("compute", name, 2 * size**3 / seconds, "FLOP/s", f"product of {size} x {size} matrices of {name}")


def tensor_float_roof(device: torch.device, budget_s: float) -> Roof:
    """The same for float32 matrices in TF32."""
    size = ACCELERATOR_MATRIX
    with tensor_float(allowed=True):
        seconds = product_s(device, torch.float32, size, budget_s)
    how = f"product of {size} x {size} matrices in TF32"
    return Roof("compute", TENSOR_FLOAT, 2 * size**3 / seconds, "FLOP/s", how)


def product_s(device: torch.device, dtype: torch.dtype, size: int, budget_s: float) -> float:
    """Seconds of a product of random matrices: zeros take less power, and are faster on some devices."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return fastest(lambda: torch.mm(left, right, out=out), device, budget_s)


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
    return 3 * a.nbytes / fastest(lambda: torch.add(b, c, alpha=3.0, out=a), device, budget_s)


def triad_bytes(device: torch.device, caches: Iterable[int], free: int) -> int:
    """Bytes of each of the three arrays that no cache of ``caches`` bytes holds, where a rank has ``free`` bytes."""
    if device.type != "cpu":
        return ACCELERATOR_TRIAD_BYTES
    wanted = BEYOND_CACHE * max(caches, default=0) // 3
    return max(TRIAD_BYTES, min(wanted, free // PART_OF_MEMORY // 3))


def free_memory(group: Group) -> int:
    """This rank's part of the memory that is free on its node; all ranks look before any takes some. Collective."""
    free = available_memory() // group.launch.local_size
    group.barrier()
    return free


def memory_roof(device: torch.device, size: int, cached: int, budget_s: float) -> Roof:
    """The triad of arrays of ``size`` bytes, where the largest cache has ``cached`` bytes."""
    how = f"triad of 3 x {size >> 20} MiB" + (", which a cache holds" if 3 * size <= cached else "")
    return Roof("memory", "memory", triad_rate(device, size, budget_s), "B/s", how)


def cache_roof(name: str, size: int, budget_s: float) -> Roof:
    """The triad of arrays that together fill half of a cache of ``size`` bytes."""
    rate = triad_rate(torch.device("cpu"), size // 6, budget_s)
    return Roof("cache", name, rate, "B/s", f"triad in half of {size >> 10} KiB, all threads of a rank")


def launch_roof(device: torch.device, budget_s: float) -> Roof:
    """Seconds that an operation on one number takes: the least cost of any operation."""
    one = torch.zeros(1, device=device)
    return Roof("launch", "launch", fastest(lambda: one.add_(1.0), device, budget_s), "s", "adding to one number")


def roof_notes(roofs: Sequence[Roof], device: torch.device) -> list[str]:
    """What the measured ``roofs`` lack, and why."""
    if any(roof.resource == "compute" and roof.name == "bfloat16" for roof in roofs):
        return []
    lacks = f"this {'processor' if device.type == 'cpu' else 'accelerator'} has no instructions for it"
    return [f"no roof of products in bfloat16: {lacks}"]
