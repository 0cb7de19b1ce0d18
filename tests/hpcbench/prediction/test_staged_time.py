"""Seconds of a staging from a plan and a probe, by hand."""

from __future__ import annotations

import pytest

from hpcbench.prediction.staged_time import staged_time
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


def test_devices_work_beside_processors() -> None:
    slow = staged_time(plan(), ceilings("warm", flush=1e8))
    assert slow.seconds == pytest.approx(10)
    assert slow.limit == "flush"
    assert staged_time(plan(), ceilings("cold")).seconds == pytest.approx(1.0 + 0.001 + 0.01 + 0.1)


def test_the_source_is_shared_and_the_rest_is_a_node_s() -> None:
    one, four = staged_time(plan(), ceilings("warm")), staged_time(plan(4), ceilings("warm", 4))
    assert four.seconds == pytest.approx(one.seconds)
    assert staged_time(plan(4, sent=10**9), ceilings("warm", 4)).parts["exchange"] == pytest.approx(2.0)
