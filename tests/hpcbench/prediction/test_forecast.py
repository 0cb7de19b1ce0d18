"""Forecasts: parts add up, more of a good thing never hurts, intervals are those of what is unknown."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hpcbench.batch.machine import Machine
from hpcbench.prediction.calibration import Calibration, between, measured_entry
from hpcbench.prediction.changes import IMPROVEMENTS, INTERCONNECT, effects, limit
from hpcbench.prediction.epochs import Epochs
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.forecast import PARTS, Forecast, forecast
from hpcbench.prediction.held_out import training_of
from hpcbench.prediction.platforms import Fact, platform_of
from hpcbench.prediction.pool import advise, aims, energy_kwh, node_hours
from hpcbench.prediction.training import Training
from hpcbench.prediction.workload import work_of
from staging.errors import InputError
from staging.planning.plan import make_plan
from staging.source.listing import Listing, Names

KNOWN = Epochs(23.0, 0.05, 0.07, "reference point", "")


def training(
    machines: dict[str, Machine], nodes: int = 64, batch: int = 512, machine: str = "selene", instances: int = 1
) -> Training:
    """CosmoFlow on a machine, with a local batch that divides."""
    platform = platform_of(machines[machine], list(machines.values()))
    work = work_of("cosmoflow")
    return Training(work, platform, nodes, platform.devices, batch, 1, True, work.train_samples,
                    work.validation_samples, KNOWN, instances=instances)  # fmt: skip


def test_the_parts_add_up_to_the_time(fitted: Fitted, machines: dict[str, Machine]) -> None:
    base = training(machines)
    for each in (base, replace(base, instances=8), replace(base, stages_first=False),
                 replace(base, input_bytes_per_s=1e9), replace(base, accumulation=2)):  # fmt: skip
        found = forecast(fitted, each)
        assert sum(found.parts.values()) == pytest.approx(found.time.central, rel=1e-12)
        assert set(found.parts) == set(PARTS)
        assert min(found.parts.values()) >= 0
        assert found.time.low <= found.time.central <= found.time.high


def test_epochs_and_steps_make_the_training_parts(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = forecast(fitted, training(machines))
    trained = sum(found.parts[name] for name in ("device", "input", "jitter", "messages"))
    interrupted = trained / (23.0 * (524_288 // 512) * found.step.central) - 1
    assert 0 < interrupted < 0.05
    assert found.epoch.central * 23.0 == pytest.approx(trained + found.parts["evaluation"], rel=1e-12)


def test_input_counts_where_it_is_slower_than_the_device(fitted: Fitted, machines: dict[str, Machine]) -> None:
    base = training(machines)
    # 8 samples of 16.8 MB at 2 GB/s take 67 ms, and the device about 8
    slow = forecast(fitted, replace(base, input_bytes_per_s=2e9))
    fast = forecast(fitted, replace(base, input_bytes_per_s=1e12))
    assert fast.parts["input"] == 0
    per_step = (slow.parts["device"] + slow.parts["input"]) / 23 / 1024
    assert per_step == pytest.approx(8 * base.work.landed_bytes / 2e9, rel=1e-9)
    assert limit(slow) == "reading samples"


def test_better_machines_are_never_slower(fitted: Fitted, machines: dict[str, Machine]) -> None:
    for machine, nodes, batch in (("selene", 16, 128), ("selene", 128, 1024), ("perlmutter-gpu", 256, 1024)):
        found = forecast(fitted, training(machines, nodes, batch, machine))
        assert all(-1 < part <= 1e-12 for part in effects(fitted, found, Calibration(), IMPROVEMENTS).values())
        slower = effects(fitted, found, Calibration(), INTERCONNECT)
        assert all(part >= 0 for part in slower.values())
        assert slower["both"] == pytest.approx(slower["bandwidth halved"] + slower["latency doubled"], rel=0.01)


def test_better_machines_are_never_slower_than_the_run_that_calibrates(fitted: Fitted) -> None:
    tuned = [entry for entry in fitted.entries if entry.tuned]
    assert len(tuned) == 27
    for entry in tuned:
        calibration = Calibration((measured_entry(entry),))
        found = forecast(fitted, training_of(entry, fitted, fitted.entries), calibration)
        better = effects(fitted, found, calibration, IMPROVEMENTS)
        assert all(-1 < part <= 1e-12 for part in better.values()), entry.words
        assert better["all ranks alike"] < 0
        slower = effects(fitted, found, calibration, INTERCONNECT)
        assert all(part >= 0 for part in slower.values()), entry.words
        assert slower["both"] == pytest.approx(slower["bandwidth halved"] + slower["latency doubled"], rel=0.01)
        if entry.stages_first:
            assert better["data there twice as fast"] == pytest.approx(
                -0.5 * found.parts["staging"] / found.time.central
            )
    assert sum(entry.stages_first for entry in tuned) >= 10


def test_fewer_epochs_save_their_part_alone(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = forecast(fitted, training(machines))
    once = found.parts["staging"] + found.parts["extras"]
    moved = effects(fitted, found, Calibration())["10 % fewer epochs"]
    assert moved == pytest.approx(-0.1 * (1 - once / found.time.central), rel=1e-9)


def test_each_part_shrinks_or_stays_with_more_nodes_at_one_batch(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = [forecast(fitted, training(machines, nodes, 512)) for nodes in (8, 16, 32, 64)]
    for name in ("staging", "device", "evaluation"):
        values = [each.parts[name] for each in found]
        assert values == sorted(values, reverse=True)
    assert [each.step.central for each in found] == sorted((each.step.central for each in found), reverse=True)


def test_what_is_unknown_makes_the_interval(fitted: Fitted, machines: dict[str, Machine]) -> None:
    base = training(machines)
    found = forecast(fitted, base)
    unsure = forecast(fitted, replace(base, epochs=replace(KNOWN, uncertainty=0.3)))
    assert unsure.time.width > found.time.width
    network = Fact(20e9, 2000e9)
    assert network.central == pytest.approx(200e9)
    dark = forecast(fitted, replace(base, platform=replace(base.platform, network_bytes_per_s=network)))
    assert dark.time.central == pytest.approx(found.time.central, rel=1e-9)
    assert dark.intervals["messages"].width > found.intervals["messages"].width


def test_the_interval_of_epochs_holds_eight_of_ten_draws(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = forecast(fitted, replace(training(machines), runs=1))
    scatter = np.hypot(KNOWN.uncertainty, KNOWN.seeds)
    drawn = KNOWN.mean * np.exp(scatter * np.random.default_rng(3).standard_normal(20_000))
    inside = np.mean((drawn >= found.epochs.low) & (drawn <= found.epochs.high))
    assert inside == pytest.approx(0.8, abs=0.02)


def test_the_last_of_several_trainings_takes_longer(fitted: Fitted, machines: dict[str, Machine]) -> None:
    base = training(machines, 4, 32)
    times = [forecast(fitted, replace(base, instances=count)).time.central for count in (1, 8, 64)]
    assert times == sorted(times)
    assert times[2] > 1.05 * times[0]


def test_calibrated_by_an_entry_its_own_step_comes_back(fitted: Fitted) -> None:
    for entry in fitted.entries:
        if not entry.tuned:
            continue
        assert entry.platform is not None
        own = Training(
            entry.work, entry.platform, entry.nodes, entry.accelerators // entry.nodes, entry.global_batch, 1,
            entry.round == "v2.0", entry.train_samples, entry.validation_samples, KNOWN, entry.stages_first,
        )  # fmt: skip
        found = forecast(fitted, own, Calibration((measured_entry(entry),)))
        assert found.step.central == pytest.approx(entry.step_s, rel=1e-9)
        assert found.step.width < forecast(fitted, own).step.width
        if entry.stages_first:
            assert found.parts["staging"] == pytest.approx(entry.data_staging_s, rel=1e-9)


def test_bytes_of_a_node_are_those_of_the_staging_plan() -> None:
    work = replace(work_of("cosmoflow"), train_samples=103, validation_samples=17)
    landed = 0
    for samples in (103, 17):
        zeros = np.zeros(samples, np.int64)
        names = Names.of(f"{number:03d}" for number in range(samples))
        listing = Listing(names, zeros + work.stored_bytes, zeros, zeros - 1)
        plan = make_plan(listing, 8, [1] * 8, "shard", "direct", 0)
        landed += max(flow.bytes_landing for flow in plan.summary().nodes)
    assert work.landed_on_node(8) == landed


def sizes(fitted: Fitted, machines: dict[str, Machine]) -> list[Forecast]:
    return [forecast(fitted, training(machines, nodes, 512)) for nodes in (8, 16, 32, 64)]


def test_energy_is_that_of_the_runs_that_measured_it(fitted: Fitted, machines: dict[str, Machine]) -> None:
    entry = next(entry for entry in fitted.entries if entry.tuned)
    runs = (measured_entry(entry), replace(measured_entry(entry), watts=2000.0))
    assert Calibration(runs).watts == 2000
    assert Calibration(runs[:1]).watts is None
    found = forecast(fitted, training(machines))
    assert energy_kwh(found, 2000) == pytest.approx(64 * found.time.central * 2000 / 3.6e6)


def test_between_two_measured_batches_the_ratio_is_linear_in_logarithms() -> None:
    known = {1.0: np.asarray(0.0), 4.0: np.asarray(0.2)}
    assert [float(between(known, batch)) for batch in (0.5, 1, 2, 4, 9)] == pytest.approx([0, 0, 0.1, 0.2, 0.2])


def test_a_pool_is_shared_as_a_search_of_all_ways_says(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = sizes(fitted, machines)
    pool = {"one": found, "two": found}
    fastest, cheapest = advise(pool, 80, "time"), advise(pool, 80, "node-hours")
    ways = [(a, b) for a in found for b in found if a.training.nodes + b.training.nodes <= 80]
    assert fastest.time_s == min(max(a.time.central, b.time.central) for a, b in ways)
    assert cheapest.node_hours == pytest.approx(min(node_hours(a) + node_hours(b) for a, b in ways))
    assert cheapest.nodes <= fastest.nodes <= 80


def test_trainings_of_one_application_may_have_different_sizes(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = sizes(fitted, machines)
    pool, watts = {"one": found, "two": found[:2]}, {"one": 9000.0, "two": 1000.0}
    trainings = {"one": 3}
    fits = [way for way in product(found, found, found, found[:2]) if sum(each.training.nodes for each in way) <= 60]
    assert len({each.training.nodes for way in fits for each in way}) > 2
    fastest = advise(pool, 60, "time", watts, trainings)
    assert fastest.time_s == min(max(each.time.central for each in way) for way in fits)
    assert [share.application for share in fastest.shares] == ["one", "one", "one", "two"]
    cheapest = advise(pool, 60, "node-hours", watts, trainings)
    assert cheapest.node_hours == pytest.approx(min(sum(map(node_hours, way)) for way in fits))
    least = min(sum(energy_kwh(each, 9000) for each in way[:3]) + energy_kwh(way[3], 1000) for way in fits)
    assert advise(pool, 60, "energy", watts, trainings).energy_kwh == pytest.approx(least)
    # 20 alike on 4 sizes are 1,771 ways, not 4^20
    assert advise({"one": found}, 20 * 8, "time", None, {"one": 20}).nodes == 160
    with pytest.raises(InputError, match=r"--pool 31 nodes are too few for 4 trainings; the smallest sizes need 32"):
        advise(pool, 31, "time", None, trainings)


def test_a_pool_is_shared_for_the_least_energy(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = sizes(fitted, machines)
    watts = {"one": 9000.0, "two": 1000.0}
    advice = advise({"one": found, "two": found}, 24, "energy", watts)
    ways = [(a, b) for a in found for b in found if a.training.nodes + b.training.nodes <= 24]
    assert len(ways) == 3
    least = min(energy_kwh(a, 9000) + energy_kwh(b, 1000) for a, b in ways)
    assert advice.energy_kwh == pytest.approx(least)
    assert aims(watts) == ("time", "node-hours", "energy")
    assert aims({**watts, "two": None}) == ("time", "node-hours")
    assert advise({"one": found, "two": found}, 24, "time", {**watts, "two": None}).energy_kwh is None


def test_a_pool_that_is_too_small_is_refused(fitted: Fitted, machines: dict[str, Machine]) -> None:
    found = sizes(fitted, machines)
    with pytest.raises(InputError, match=r"--pool 10.*2 trainings.* 16"):
        advise({"one": found, "two": found}, 10, "time")
    several = [forecast(fitted, training(machines, nodes, 512, instances=4)) for nodes in (8, 16)]
    with pytest.raises(InputError, match=r"--pool 63 nodes are too few for 8 trainings; the smallest sizes need 64$"):
        advise({"one": several, "two": several}, 63, "time")
    assert advise({"one": several, "two": several}, 64, "time").nodes == 64
    with pytest.raises(InputError, match=r"ways to share 100 nodes are too many"):
        advise({str(number): found for number in range(12)}, 100, "time")
