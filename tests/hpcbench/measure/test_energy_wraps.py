"""RAPL's counters: a wrap of the register is energy, a reset of it is none and is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcbench.measure.energy import Absent, Counters, Energy, EnergyMeter
from hpcbench.measure.energy_sources import Counter
from tests.hpcbench.measure.energy_counters import RANGE_UJ, Clock, absence, counters, energy, meter_of, write, zone

RANGE_J = RANGE_UJ / 1e6


@pytest.fixture(autouse=True)
def without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def package(root: Path, joules: float) -> Path:
    return zone(root, "0", "package-0", round(joules * 1e6))


def measured(root: Path, start: float, readings: list[tuple[float, float]]) -> Energy | Absent:
    """What a meter makes of a package at ``start`` joules and of (seconds after the one before, joules)."""
    clock = Clock()
    package(root, start)
    with meter_of(root, clock) as meter:
        for seconds, joules in readings:
            clock.now += seconds
            package(root, joules)
            meter.sample()
        return meter.read()


def test_wraps_at_the_power_of_the_run_are_energy(tmp_path: Path) -> None:
    """200 W; the count passes the end of its range twice, and the second time from one reading in its last second."""
    found = measured(tmp_path, RANGE_J - 4_100, [(10, RANGE_J - 2_100), (10, RANGE_J - 100), (10, 1_900), (10, 3_900)])
    assert energy(found).joules == pytest.approx(8_000)
    again = measured(tmp_path, RANGE_J - 100, [(10, 1_900), (1, RANGE_J - 1)])
    assert "jumped" in absence(again), "the rest of the range within a second is no power of a package"


def test_a_wrap_in_the_first_interval_is_energy(tmp_path: Path) -> None:
    assert energy(measured(tmp_path, RANGE_J - 1_500, [(10, 2_000)])).joules == pytest.approx(3_500)


def test_a_reset_to_near_zero_is_no_wrap(tmp_path: Path) -> None:
    """As a wrap it would be 262 kJ - 130 kJ in ten seconds."""
    found = measured(tmp_path, 130_000, [(10, 132_000), (10, 15), (10, 2_015)])
    assert absence(found) == (
        "the counter of package-0 was reset: it went from 132000 J to 15 J within 10 s, as a wrap that is 13,016 W, "
        "and 600 W is the most"
    )


def test_a_reset_to_just_below_is_no_wrap(tmp_path: Path) -> None:
    """As a wrap it would be the whole range less a joule."""
    found = absence(measured(tmp_path, 130_000, [(10, 132_000), (10, 131_999)]))
    assert "went from 132000 J to 131999 J within 10 s, as a wrap that is 26,214 W" in found


def test_a_reset_that_only_a_greedier_run_could_wrap_is_seen(tmp_path: Path) -> None:
    """Ten seconds of 1,200 W would be a wrap; the package has drawn 100 W, so that it is none."""
    calm = absence(measured(tmp_path, RANGE_J - 13_000, [(10, RANGE_J - 12_000), (10, 10)]))
    assert "as a wrap that is 1,201 W, and 500 W is the most" in calm
    busy = measured(tmp_path, RANGE_J - 18_000, [(10, RANGE_J - 12_000), (10, 10)])
    assert energy(busy).joules == pytest.approx(18_010)


def test_the_power_that_a_zone_states_bounds_a_wrap(tmp_path: Path) -> None:
    """A zone of 300 W at the most; a file that can't be read, or states nothing, says nothing."""
    folder = "sys/class/powercap/intel-rapl:0"
    package(tmp_path, 1)
    assert counters(tmp_path).summed[0].most_w == 3000
    write(tmp_path, {f"{folder}/constraint_0_max_power_uw": 0, f"{folder}/constraint_2_max_power_uw": "n/a"})
    assert counters(tmp_path).summed[0].most_w == 3000
    write(tmp_path, {f"{folder}/constraint_1_max_power_uw": 300_000_000})
    assert counters(tmp_path).summed[0].most_w == 600
    found = absence(measured(tmp_path, RANGE_J - 13_000, [(10, RANGE_J - 8_000), (10, 10)]))
    assert "as a wrap that is 801 W, and 600 W is the most" in found


def test_a_zone_that_states_too_little_does_not_cost_the_figure(tmp_path: Path) -> None:
    write(package(tmp_path, 1), {"sys/class/powercap/intel-rapl:0/constraint_0_max_power_uw": 15_000_000})
    assert energy(measured(tmp_path, 1_000, [(10, 5_000)])).joules == pytest.approx(4_000)


def test_a_jump_upwards_that_is_no_power_is_no_energy(tmp_path: Path) -> None:
    found = absence(measured(tmp_path, 1_000, [(10, 3_000), (10, 103_000)]))
    assert "within 10 s, which is 10,000 W, and 3,000 W is the most" in found


def test_readings_that_are_too_far_apart_for_one_wrap_are_no_energy(tmp_path: Path) -> None:
    """At 3,000 W the range of 262,143 J is through in 87 s; in 88 it may be through twice."""
    assert energy(measured(tmp_path, 1_000, [(87, 18_000)])).joules == pytest.approx(17_000)
    for joules in (18_000, 500):
        found = absence(measured(tmp_path, 1_000, [(88, joules)]))
        assert found == "package-0 was not read for 88 s, in which its counter may have wrapped unseen"


def test_a_count_that_was_lost_stays_lost(tmp_path: Path) -> None:
    """Neither what was counted before the reset nor what is counted after it is the energy of the run."""
    assert "was reset" in absence(measured(tmp_path, 130_000, [(10, 15), (10, 2_015), (10, 4_015)]))


def test_another_wrap_right_after_one_is_a_reset(tmp_path: Path) -> None:
    assert "was reset" in absence(measured(tmp_path, RANGE_J - 100, [(10, 1_900), (10, 1_000)]))


def test_readings_at_nearly_the_same_time_say_nothing_of_the_power(tmp_path: Path) -> None:
    """A register is updated in steps: here 5 J appear within a millisecond, and later the range ends in one."""
    found = measured(tmp_path, RANGE_J - 15, [(0.001, RANGE_J - 10), (0.001, RANGE_J - 5), (0.001, 3)])
    assert energy(found).joules == pytest.approx(18)


@pytest.mark.parametrize(("range_j", "expected_s"), [(RANGE_J, 10.0), (65_532.61, 65_532.61 / 3000 / 3), (900, 0.1)])
def test_counters_are_read_three_times_within_their_shortest_wrap(range_j: float, expected_s: float) -> None:
    counter = Counter("package-0", lambda: 1, round(range_j * 1e6))
    with EnergyMeter(Counters("RAPL", "processors", (counter,))) as meter:
        assert meter.interval_s == pytest.approx(expected_s)
        assert meter.interval_s * 3 <= counter.wrap_s


def test_counters_without_a_range_are_read_as_often_as_asked() -> None:
    with EnergyMeter(Counters("pm_counters", "node", (Counter("node", lambda: 1),)), interval_s=20.0) as meter:
        assert meter.interval_s == 20.0
