"""The look at a rank's speed: medians of known times, and a product that is timed as a user would."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hpcbench.measure import node_probe
from hpcbench.measure.node_probe import REDUCED_BYTES, REPEATS, SIZE, probe, timed

HOST = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only the tests let pass."""
    now = [0.0]
    monkeypatch.setattr(node_probe, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def taking(clock: list[float], seconds: list[float]) -> Callable[[], None]:
    """Work that takes another of these times each time it is done."""
    left = iter(seconds)

    def work() -> None:
        clock[0] += next(left)

    return work


def test_the_median_leaves_out_the_first_repeat_and_what_comes_before_each(clock: list[float]) -> None:
    own = [1.0, 64.0, 2.0, 0.5, 4.0, 3.0, 0.25]
    assert len(own) == REPEATS
    waits = taking(clock, [100.0] * (REPEATS + 1))
    assert timed(taking(clock, [1000.0, *own]), HOST, waits) == 2.0
    assert clock[0] == 1000.0 + sum(own) + 100.0 * (REPEATS + 1)


def test_work_on_an_accelerator_is_timed_to_its_end(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was queued before does not count, what the work itself queues does."""
    queued = [0.0]

    def wait(device: torch.device) -> None:
        clock[0] += queued[0]
        queued[0] = 0.0

    def add(seconds: float) -> None:
        queued[0] += seconds

    monkeypatch.setattr(torch.accelerator, "synchronize", wait)
    assert timed(lambda: add(3.0), torch.device("meta"), lambda: add(50.0)) == 3.0


class Two:
    """A world of two whose messages take 20 ms, and whose barrier takes 60, on a clock of its own."""

    world_size = 2

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[int] = []

    def perf_counter(self) -> float:
        self.now += 1e-6
        return self.now

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        self.now += 0.02
        self.sent.append(tensor.numel() * tensor.element_size())
        return tensor

    def barrier(self) -> None:
        self.now += 0.06


def test_sixteen_mebibytes_are_reduced_and_waiting_for_others_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    group: Any = Two()
    monkeypatch.setattr(node_probe, "time", group)
    found = probe(group, HOST)
    assert group.sent == [REDUCED_BYTES] * (REPEATS + 1)
    assert REDUCED_BYTES == 16 * 2**20
    assert found.all_reduce_s == pytest.approx(0.02, rel=1e-3)


def test_a_single_rank_reduces_nothing_and_multiplies_as_fast_as_torch() -> None:
    """A product of n x n matrices has n^3 multiplications and as many additions."""
    alone: Any = SimpleNamespace(world_size=1)
    found = probe(alone, HOST)
    assert found.all_reduce_s is None
    size = SIZE["cpu"]
    matrix = torch.randn(size, size)
    seconds = timed(lambda: torch.mm(matrix, matrix), HOST)
    # A busy machine may slow either of them down.
    assert 0.1 < found.gemm_flops * seconds / (2 * size**3) < 10
