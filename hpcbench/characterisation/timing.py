"""Times of a piece of work on a device, in a budget of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

INNER_S = 2e-3
"""Short work is repeated between two looks at the clock until it lasts this long."""
LEAST, MOST = 3, 50


def synchronizer(device: torch.device) -> Callable[[], None]:
    """A function that waits for the device."""
    if device.type == "cpu":
        return lambda: None
    return lambda: torch.accelerator.synchronize(device)


def timed(work: Callable[[], object], device: torch.device, budget_s: float = 0.2) -> float:
    """Median seconds of ``work`` over 3 to 50 repeats in about ``budget_s``, after one to warm up.

    Work that lasts longer than the budget is done twice, and the second time counts.
    """
    return median(repeated(work, device, budget_s, 1))


def fastest(work: Callable[[], object], device: torch.device, budget_s: float = 0.2) -> float:
    """The least seconds of ``work`` over the same repeats, of which there are at least 3, however long one lasts."""
    return min(repeated(work, device, budget_s, LEAST))


def repeated(work: Callable[[], object], device: torch.device, budget_s: float, least: int) -> list[float]:
    """Seconds of ``work`` in each repeat; ``least`` repeats of work that lasts longer than the budget."""
    wait = synchronizer(device)

    def round_of(repeats: int) -> float:
        wait()
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        wait()
        return (time.perf_counter() - started) / repeats

    round_of(1)
    once = round_of(1)
    if once > budget_s:
        return [once, *(round_of(1) for _ in range(least - 1))]
    inner = max(1, round(INNER_S / max(once, 1e-7)))
    rounds = min(MOST, max(LEAST, round(budget_s / max(once * inner, 1e-7))))
    return [round_of(inner) for _ in range(rounds)]
