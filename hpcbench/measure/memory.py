"""Memory: peak use of the process and of the accelerator, and what the process may use."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory in bytes that tensors took on ``device``, or that the process took if ``device`` is the CPU."""
    if device.type == "cpu":
        return process_peak_bytes()
    import torch

    return int(torch.get_device_module(device).max_memory_allocated(device))


def reset_peak_memory(device: torch.device) -> None:
    """Restart the peak. On the CPU this needs Linux; on other systems the peak remains that of the whole process."""
    if device.type == "cpu":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return
    import torch

    torch.get_device_module(device).reset_peak_memory_stats(device)


def process_peak_bytes() -> int:
    """Peak resident memory of this process in bytes."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    # Only a fallback: this value is inherited from the process that started this one.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_limit_bytes(root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> int | None:
    """Memory that the control group (a batch job, a container) allows this process; ``None`` without a limit."""
    limits = [limit for folder in _groups(root, process) for limit in _limits(folder)]
    total = psutil.virtual_memory().total
    return min((limit for limit in limits if limit < total), default=None)


def _groups(root: Path, process: Path) -> list[Path]:
    """Folders of the process's control groups with all their parents, version 2 and version 1."""
    folders = [root, root / "memory"]
    with contextlib.suppress(OSError):
        for line in process.read_text(encoding="utf-8").splitlines():
            _, controllers, name = line.split(":", 2)
            base = root if not controllers else root / "memory"
            if not controllers or "memory" in controllers.split(","):
                leaf = base / name.lstrip("/")
                folders += [leaf, *(parent for parent in leaf.parents if base in parent.parents)]
    return folders


def _limits(folder: Path) -> list[int]:
    limits = []
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int((folder / name).read_text(encoding="ascii")))
    return limits
