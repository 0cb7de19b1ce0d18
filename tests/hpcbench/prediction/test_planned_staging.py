"""Stagings by plan and probe: as ``staged_time`` says by hand, on other numbers of nodes, and from files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.machine import Machine
from hpcbench.prediction.calibration import Calibration, measured_entry
from hpcbench.prediction.changes import IMPROVEMENTS, effects
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.forecast import forecast
from hpcbench.prediction.planned_staging import ceilings_at, plan_of, planned_staging, read_probe, way_of
from hpcbench.prediction.platforms import Fact
from hpcbench.prediction.request import Request, predict
from hpcbench.prediction.staged_time import staged_time
from hpcbench.prediction.workload import Work, work_of
from staging.errors import InputError
from staging.planning.plan_summary import NodeFlow, PlanSummary
from staging.probing.ceilings import Ceilings, Rate
from tests.hpcbench.prediction.test_forecast import training
from tests.hpcbench.prediction.test_staged_time import ceilings

SMALL: Work = replace(work_of("cosmoflow"), train_samples=800, validation_samples=200, stored_bytes=10**6)


def probe_of(nodes: int, read: float = 1e9) -> Ceilings:
    """The source gives each probed node ``read`` bytes/s; a node writes 2 GB/s, and flushes as much."""
    rates = (("read", read), ("write", 2e9), ("write_flushed", 2e9))
    return Ceilings("/source", "/local", tuple(f"n{number}" for number in range(nodes)), nodes, 1.0, tuple(
        Rate(part, 1, 0, (rate,) * nodes, "cold" if part == "read" else "buffered") for part, rate in rates
    ))  # fmt: skip


def test_a_plan_shares_both_splits() -> None:
    summary = plan_of(SMALL, 4)
    assert (summary.files, summary.bytes) == (1000, 10**9)
    assert {(flow.files_landing, flow.bytes_landing, flow.bytes_read) for flow in summary.nodes} == {
        (250, 250 * 10**6, 250 * 10**6)
    }
    assert max(flow.bytes_landing for flow in plan_of(SMALL, 7).nodes) == SMALL.landed_on_node(7)
    one = plan_of(replace(SMALL, validation_samples=0), 1)
    assert one.nodes == (NodeFlow(0, 800, 800 * 10**6, 800 * 10**6, 0, 0, 0),)


def test_on_the_probed_nodes_it_is_staged_time_by_hand() -> None:
    found = planned_staging(SMALL, 4, ceilings("cold", 4))
    flows = tuple(NodeFlow(number, 250, 250 * 10**6, 250 * 10**6, 0, 0, 0) for number in range(4))
    by_hand = staged_time(PlanSummary(1000, 10**9, 1, flows), ceilings("cold", 4), way="buffered")
    assert found.seconds == Fact(by_hand.seconds, by_hand.seconds)
    # 1000 files opened at 4e5/s; of 250 MB reading takes 125 ms, writing 250 ms, creating 25 ms, checksums 25 ms
    assert by_hand.seconds == pytest.approx(0.0025 + 0.125 + 0.25 + 0.025 + 0.025)
    assert found.limits == (by_hand.limit,)
    assert found.probed_nodes == 4


def test_the_source_gives_from_what_it_gave_to_what_it_gives_each_node() -> None:
    # 1 GB: 2 nodes got 0.2 GB/s together; 8 nodes get from 0.2 to 0.8 GB/s; one stream of a node then writes its part
    found, wrote = planned_staging(SMALL, 8, probe_of(2, 1e8)), 125e6 / 2e9
    assert (found.seconds.low, found.seconds.high) == pytest.approx((1e9 / 8e8 + wrote, 1e9 / 2e8 + wrote))
    assert found.limits == ("cold read",)
    # the machine's file system gives 0.5 GB/s to all
    assert planned_staging(SMALL, 8, probe_of(2, 1e8), 5e8).seconds.low == pytest.approx(1e9 / 5e8 + wrote)
    # fewer nodes than were probed get their part
    assert planned_staging(SMALL, 1, probe_of(2, 1e8)).seconds == Fact(10.5, 10.5)


def test_rates_of_a_node_are_those_of_the_median_node() -> None:
    uneven = replace(probe_of(3), rates=(Rate("write", 1, 0, (1e9, 2e9, 9e9)), Rate("read", 1, 0, (1e9, 1e9, 4e9))))
    (write, read) = ceilings_at(uneven, 6, grows=True).rates
    assert write.per_node == (2e9,) * 6
    assert read.total == pytest.approx(6e9)
    assert ceilings_at(uneven, 6, grows=False).rates[1].total == pytest.approx(6e9)
    assert ceilings_at(uneven, 12, grows=False).rates[1].total == pytest.approx(6e9)
    assert ceilings_at(uneven, 6, grows=True).ranks == 6  # as many on a node
    assert way_of(probe_of(1)) == "buffered"
    assert way_of(uneven) == "auto"


def test_a_forecast_takes_the_plan_for_the_fit(fitted: Fitted, machines: dict[str, Machine]) -> None:
    base = training(machines)
    planned = replace(base, planned_staging=planned_staging(base.work, 64, probe_of(2, 5e9)))
    assert planned.planned_staging is not None
    found = forecast(fitted, planned)
    assert found.parts["staging"] == pytest.approx(planned.planned_staging.seconds.central)
    assert found.staging.low < planned.planned_staging.seconds.central < found.staging.high
    moved = effects(fitted, found, Calibration(), IMPROVEMENTS)["data there twice as fast"]
    assert moved == pytest.approx(-0.5 * found.parts["staging"] / found.time.central)


def test_a_run_that_staged_tells_more_than_a_probe(fitted: Fitted, machines: dict[str, Machine]) -> None:
    request = Request("cosmoflow", machines["selene"], (16,), 512, probe=probe_of(2, 5e9))
    (size,) = predict(request, fitted, list(machines.values()))
    assert size.forecast is not None
    assert size.forecast.training.planned_staging is not None
    entry = next(entry for entry in fitted.entries if entry.tuned and entry.stages_first)
    staged = replace(request, calibration=Calibration((measured_entry(entry),)))
    (size,) = predict(staged, fitted, list(machines.values()))
    assert size.forecast is not None
    assert size.forecast.training.planned_staging is None


def test_a_probe_s_file_comes_back(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text(json.dumps(probe_of(2).as_dict()))
    assert read_probe(tmp_path / "probe.json") == probe_of(2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, r"has schema 2 where 1 is read"),
        ({"what": "hpcbench characterisation"}, "is no probe's result"),
        ({"rates": []}, r"has no rate of source read; probe for longer \(--probe-seconds\)"),
        ({"rates": probe_of(2).as_dict()["rates"][:1]}, "has no rate of local write"),
        ({"nodes": [], "rates": probe_of(0).as_dict()["rates"]}, "has no rate of source read"),
        ({"rates": probe_of(2, 0.5).as_dict()["rates"]}, "has no rate of source read"),
        ({"rates": 3}, "is not a probe's result"),
    ],
)
def test_what_is_no_probe_is_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(probe_of(2).as_dict() | changes))
    with pytest.raises(InputError, match=message):
        read_probe(path)
