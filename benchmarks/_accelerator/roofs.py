"""Measured maxima of the device: matrix products and copies; and the bytes that operations touch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32-true": torch.float32}


def current_device() -> torch.device:
    """Return the accelerator, or the CPU if there is none."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Return a function that waits for the device."""
    if device.type == "cpu":
        return lambda: None
    wait: Callable[[], None] = torch.get_device_module(device).synchronize
    return wait


def timed(
    step: Callable[[], object], device: torch.device, *, rounds: int = 7, at_least_s: float = 0.2, warmup: int = 3
) -> list[float]:
    """Seconds per step in each round: the mean over steps that last ``at_least_s``, after ``warmup`` steps."""
    wait = synchronizer(device)
    for _ in range(warmup):
        step()
    wait()
    start = time.perf_counter()
    step()
    wait()
    repeats = max(1, round(at_least_s / max(time.perf_counter() - start, 1e-6)))
    seconds = []
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        wait()
        seconds.append((time.perf_counter() - start) / repeats)
    return seconds


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and range of step times."""
    return {"step_s": statistics.median(seconds), "step_s_min": min(seconds), "step_s_max": max(seconds)}


def measure_roofs(device: torch.device, smoke: bool) -> dict[str, Any]:
    """Measure operations/s of matrix products (random data, TF32 for float32), and bytes/s of a copy."""
    size, length = (256, 1 << 20) if smoke else (8192, 1 << 31)
    roofs: dict[str, Any] = {"flops_per_s": {}, "matrix_size": size}
    allowed, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    for precision, dtype in DTYPES.items():
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        c = torch.empty_like(a)

        def product(a: Tensor = a, b: Tensor = b, c: Tensor = c) -> Tensor:
            return torch.mm(a, b, out=c)

        roofs["flops_per_s"][precision] = 2 * size**3 / statistics.median(timed(product, device, at_least_s=0.05))
    torch.backends.cuda.matmul.allow_tf32 = allowed
    source = torch.randint(0, 100, (length,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = statistics.median(timed(lambda: target.copy_(source), device, at_least_s=0.05))
    return roofs | {"copy_bytes_per_s": 2 * length / copied}


class ByteCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of all tensors that operations other than views read or write: what a step moves if nothing is
    fused and no cache helps."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and func.overloadpacket not in (torch.ops.aten.empty, torch.ops.aten.empty_like):
            seen = {id(part): part for part in tensors((args, kwargs, result))}
            self.bytes += sum(part.nbytes for part in seen.values())
        return result


def tensors(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [part for entry in value for part in tensors(entry)] if isinstance(value, list | tuple) else []
