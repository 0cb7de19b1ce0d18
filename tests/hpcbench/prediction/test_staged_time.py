"""Seconds of a staging from a plan and a probe, by hand."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest

from hpcbench.prediction.staged_time import seconds_of_streams, staged_time
from staging.planning.plan_summary import NodeFlow, PlanSummary
from staging.probing.ceilings import Ceilings, Rate


def ceilings(read: str, nodes: int = 1, flush: float = 1e9) -> Ceilings:
    def rate(part: str, value: float, note: str = "") -> Rate:
        return Rate(part, 1, 0, (value,) * nodes, note)

    return Ceilings("s", "d", tuple(f"n{number}" for number in range(nodes)), nodes, 1.0, (
        rate("read", 2e9, read), rate("open", 1e5), rate("write", 1e9, "buffered"), rate("create", 1e4),
        rate("write_flushed", flush, "buffered"), rate("crc32c", 1e10), rate("exchange", 5e8),
    ))  # fmt: skip


def plan(nodes: int = 1, sent: int = 0) -> PlanSummary:
    flows = tuple(NodeFlow(number, 100, 10**9, 10**9, sent, sent, 0) for number in range(nodes))
    return PlanSummary(100 * nodes, nodes * 10**9, 1, flows)


def test_work_of_processors_adds_up() -> None:
    found = staged_time(plan(), ceilings("warm"))
    # 0.5 s read, 1 ms open, 1 s written, 10 ms created, 0.1 s of checksums; the flush goes on beside it
    assert found.seconds == pytest.approx(0.5 + 0.001 + 1.0 + 0.01 + 0.1)
    assert staged_time(plan(), ceilings("warm"), verify="none").seconds == pytest.approx(found.seconds - 0.1)
    assert found.limit in ("write", "flush")


def test_what_is_not_flushed_yet_is_flushed_at_the_end() -> None:
    slow = staged_time(plan(), ceilings("warm", flush=1e8))
    assert slow.seconds == pytest.approx(1.611 + 10 - 1)  # the flushed rate is that of writing and flushing
    assert slow.limit == "flush"
    # a twentieth of the bytes may wait in memory, and the others are flushed beside the streams
    small = replace(ceilings("warm", flush=1e8), machine=[{"memory_bytes": 5e8}])
    assert staged_time(plan(), small).seconds == pytest.approx(10)
    assert staged_time(plan(), replace(small, machine=[{}])).seconds == pytest.approx(slow.seconds)


def test_a_single_stream_reads_and_writes_in_turn_and_many_keep_the_source_busy() -> None:
    assert staged_time(plan(), ceilings("cold")).seconds == pytest.approx(0.5 + 1.111)
    for threads, seconds in ((2, 1.407), (64, 1.125)):  # at least all work over the streams: 1.361, 1.119
        rates = tuple(replace(rate, threads=threads) for rate in ceilings("cold").rates)
        assert staged_time(plan(), replace(ceilings("cold"), rates=rates)).seconds == pytest.approx(seconds, abs=1e-3)


@pytest.mark.parametrize("streams", [1, 2, 5, 40])
def test_streams_that_share_a_device_take_as_long_as_in_a_simulation(streams: int) -> None:
    """Mean value analysis is exact where times at the device and elsewhere are exponential."""
    device, elsewhere, jobs = 0.3, 0.7, 40_000
    draws = np.random.default_rng(streams)
    arrivals = [float(draws.exponential(elsewhere)) for _ in range(streams)]
    heapq.heapify(arrivals)
    free = 0.0
    for _ in range(jobs):  # first come, first served
        free = max(free, heapq.heappop(arrivals)) + float(draws.exponential(device))
        heapq.heappush(arrivals, free + float(draws.exponential(elsewhere)))
    assert seconds_of_streams(device, elsewhere, streams) == pytest.approx(free / jobs, rel=0.03)


def test_a_stream_alone_waits_longer_for_a_source_that_many_share() -> None:
    slow = Rate("read", 1, 0, (5e8,), "cold")
    found = replace(ceilings("cold"), rates=(slow, *(replace(rate, threads=4) for rate in ceilings("cold").rates)))
    time = staged_time(plan(), found)
    assert (time.streams, time.delay) == (4, pytest.approx(2.0 - 0.5))
    assert time.seconds == pytest.approx(seconds_of_streams(0.5, 4 * 1.111 + 1.5, 4))


def test_the_source_is_shared_and_the_rest_is_a_node_s() -> None:
    one, four = staged_time(plan(), ceilings("warm")), staged_time(plan(4), ceilings("warm", 4))
    assert four.seconds == pytest.approx(one.seconds)
    assert staged_time(plan(4, sent=10**9), ceilings("warm", 4)).parts["exchange"] == pytest.approx(2.0)
