"""Caches of the processor, as the system reports them."""

from __future__ import annotations

import os
from pathlib import Path

import torch

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


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
