"""Energy of a node: joules that are written into trees like sysfs, and counters that wrap, fall back or stand still."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpcbench.measure.energy import Counters, Energy, EnergyMeter, find_energy_counters
from hpcbench.measure.energy_sources import Counter
from tests.hpcbench.measure.energy_counters import (
    Clock,
    absence,
    counters,
    cray,
    energy,
    meter_of,
    nvml,
    without_nvml,
    write,
    zone,
)

__all__ = ["without_nvml"]


def test_nothing_to_read_is_said_and_never_zero(tmp_path: Path) -> None:
    found = find_energy_counters(tmp_path)
    assert absence(found) == (
        f"no energy counter: pm_counters: no {tmp_path}/sys/cray/pm_counters; "
        'NVML: the package nvidia-ml-py is not installed (pip install "hpcbench-ml[energy]"); '
        f"hwmon: no GPU in {tmp_path}/sys/class/drm; RAPL: no package in {tmp_path}/sys/class/powercap"
    )
    with EnergyMeter(found) as meter:
        assert meter.read() is found
    assert meter.read() is found


def test_crays_counter_is_the_node_and_its_parts_are_inside(tmp_path: Path) -> None:
    cray(tmp_path, energy=5_000, cpu_energy=1_000, memory_energy=200, accel0_energy=1_500, accel1_energy=1_600)
    with meter_of(tmp_path) as meter:
        cray(
            tmp_path, us=9, energy=9_321, cpu_energy=1_900, memory_energy=450, accel0_energy=2_500, accel1_energy=2_700
        )
        found = energy(meter.read())
    assert found == Energy(
        4_321.0, {"accel0": 1_000.0, "accel1": 1_100.0, "cpu": 900.0, "memory": 250.0}, "pm_counters", "node"
    )


def test_the_node_counter_is_taken_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone(tmp_path, "0", "package-0", 10)
    monkeypatch.setitem(sys.modules, "pynvml", nvml([7]))
    found = counters(cray(tmp_path, energy=5_000))
    assert (found.source, found.covers, len(found.summed), found.inside) == ("pm_counters", "node", 1, ())


@pytest.mark.parametrize(
    "line", ["", "12", "12 J", "12 kJ 34 us", "12 J 34 ms", "-12 J 34 us", "12.5 J 34 us", "12 J 34 us 5", "0 J 34 us"]
)
def test_a_malformed_node_counter_is_not_taken(tmp_path: Path, line: str) -> None:
    write(cray(tmp_path), {"sys/cray/pm_counters/energy": line})
    zone(tmp_path, "0", "package-0", 10)
    found = counters(tmp_path)
    assert found.source == "RAPL"
    said = "the counter of node stands at 0" if line.startswith("0") else f"{line!r}, not joules and microseconds"
    assert said in found.missing[0]


def test_a_malformed_part_does_not_spoil_the_node(tmp_path: Path) -> None:
    found = counters(cray(tmp_path, energy=5_000, cpu_energy="n/a", memory_energy=200, accel_energy=0))
    assert [counter.part for counter in found.inside] == ["memory"]


def test_a_restarted_blade_controller_ends_the_count_for_good(tmp_path: Path) -> None:
    cray(tmp_path, energy=5_000)
    with meter_of(tmp_path) as meter:
        cray(tmp_path, startup=1_700_000_999, energy=6_000)
        assert absence(meter.read()) == "node: the blade controller was restarted"
        cray(tmp_path, energy=7_000)
        assert absence(meter.read()) == "node: the blade controller was restarted"


def test_a_changed_power_cap_does_not(tmp_path: Path) -> None:
    """Cray's ``generation`` counts changes of the cap."""
    cray(tmp_path, generation=3, energy=5_000)
    with meter_of(tmp_path) as meter:
        cray(tmp_path, generation=4, energy=6_000)
        assert energy(meter.read()).joules == 1_000.0


def test_a_counter_that_falls_back_is_no_energy(tmp_path: Path) -> None:
    cray(tmp_path, energy=5_000)
    with meter_of(tmp_path) as meter:
        cray(tmp_path, energy=4_000)
        assert absence(meter.read()) == "the counter of node fell from 5000 J to 4000 J"
        cray(tmp_path, energy=9_000)
        assert absence(meter.read()) == "the counter of node fell from 5000 J to 4000 J"


def test_a_counter_that_stands_still_is_no_energy(tmp_path: Path) -> None:
    clock = Clock()
    cray(tmp_path, energy=5_000)
    with meter_of(tmp_path, clock) as meter:
        clock.now = 59.0
        assert energy(meter.read()).joules == 0.0
        clock.now = 60.0
        assert absence(meter.read()) == "the counter of node stood still for 60 s"


def test_a_counter_that_moves_now_and_then_does_not_stand_still(tmp_path: Path) -> None:
    clock = Clock()
    cray(tmp_path, energy=5_000)
    with meter_of(tmp_path, clock) as meter:
        for joules in range(5_001, 5_011):
            clock.now += 50.0
            meter.sample()
            clock.now += 5.0
            cray(tmp_path, energy=joules)
            meter.sample()
        assert energy(meter.read()).joules == 10.0


def test_a_file_that_cannot_be_read_now_costs_only_this_reading(tmp_path: Path) -> None:
    path = cray(tmp_path, energy=5_000) / "sys/cray/pm_counters/energy"
    with meter_of(tmp_path) as meter:
        path.unlink()
        assert "No such file" in absence(meter.read())
        cray(tmp_path, energy=5_700)
        assert energy(meter.read()).joules == 700.0


def test_a_file_that_cannot_be_read_at_the_start_costs_all(tmp_path: Path) -> None:
    meter = meter_of(cray(tmp_path, energy=5_000))
    (tmp_path / "sys/cray/pm_counters/energy").unlink()
    with meter:
        cray(tmp_path, energy=5_700)
        assert "No such file" in absence(meter.read())


@pytest.mark.parametrize(("refusals", "readable"), [(3, True), (10, False)])
def test_a_busy_file_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, readable: bool
) -> None:
    """Python returns nothing for EAGAIN from an unbuffered file."""
    cray(tmp_path, energy=5_000)
    left = [refusals]
    real = Path.open

    def refusing(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "energy" and left[0]:
            left[0] -= 1
            return Busy()
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", refusing)
    assert isinstance(find_energy_counters(tmp_path), Counters) == readable


class Busy:
    """A file that is not ready."""

    def __enter__(self) -> Busy:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self) -> None:
        return None


def test_processors_and_memory_once_each(tmp_path: Path) -> None:
    """Cores and graphics are within the package, and mmio shows the package again; psys is not to be added."""
    for package in "01":
        zone(tmp_path, package, f"package-{package}", 1_000_000)
        zone(tmp_path, f"{package}:0", "core", 1_000_000)
        zone(tmp_path, f"{package}:1", "uncore", 1_000_000)
        zone(tmp_path, f"{package}:2", "dram", 1_000_000)
        zone(tmp_path, package, f"package-{package}", 1_000_000, kind="intel-rapl-mmio")
    zone(tmp_path, "2", "psys", 1_000_000)
    found = counters(tmp_path)
    assert (found.source, found.covers) == ("RAPL", "processors and memory")
    with meter_of(tmp_path) as meter:
        for path in tmp_path.glob("sys/class/powercap/*/energy_uj"):
            path.write_text("1000001\n")
        zone(tmp_path, "0", "package-0", 4_500_000)
        zone(tmp_path, "1:2", "dram", 1_250_000)
        assert energy(meter.read()) == Energy(
            3.750002,
            {"package-0": 3.5, "package-1": 1e-6, "dram of package-0": 1e-6, "dram of package-1": 0.25},
            "RAPL",
            "processors and memory",
        )


@pytest.mark.parametrize("content", [None, 0, "unknown"])
def test_memory_counts_only_where_every_package_has_it(tmp_path: Path, content: object) -> None:
    for package in "01":
        zone(tmp_path, package, f"package-{package}", 10)
    zone(tmp_path, "0:0", "dram", 10)
    if content is not None:
        zone(tmp_path, "1:0", "dram", content)
    found = counters(tmp_path)
    assert found.covers == "processors"
    assert [counter.part for counter in found.summed] == ["package-0", "package-1"]


def test_psys_alone_is_no_source(tmp_path: Path) -> None:
    assert "RAPL: no package" in absence(find_energy_counters(zone(tmp_path, "0", "psys", 10)))


def test_counters_for_root_alone_are_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zone(tmp_path, "0", "package-0", 10) / "sys/class/powercap/intel-rapl:0/energy_uj"
    real = Path.open

    def forbidding(self: Path, *args: Any, **options: Any) -> Any:
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self, *args, **options)

    monkeypatch.setattr(Path, "open", forbidding)  # a test that runs as root may read what it forbids
    assert f"RAPL: {path} is for root alone, as it is since Linux 5.10" in absence(find_energy_counters(tmp_path))


@pytest.mark.parametrize("content", ["", "-5", "5.0", "0x5", "٥", "0"])
def test_malformed_packages_are_no_source(tmp_path: Path, content: str) -> None:
    zone(tmp_path, "0", "package-0", 10)
    assert "RAPL: " in absence(find_energy_counters(zone(tmp_path, "1", "package-1", content)))


def test_a_package_without_a_range_is_no_source(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 10)
    write(tmp_path, {"sys/class/powercap/intel-rapl:0/max_energy_range_uj": 0})
    assert "the counter of package-0 stands at 0" in absence(find_energy_counters(tmp_path))


@given(st.integers(0, 2**40), st.lists(st.integers(0, 10**9)), st.integers(31 * 10**9, 2**40))
def test_steps_that_a_package_can_draw_add_up_exactly(start: int, steps: list[int], range_uj: int) -> None:
    """Up to 100 W over 10 s, through a range that 3,000 W need longer for."""
    value, clock = start % range_uj, Clock()
    counter = Counter("package-0", lambda: value, range_uj)
    with EnergyMeter(Counters("RAPL", "processors", (counter,)), interval_s=3600.0, clock=clock) as meter:
        for step in steps:
            value = (value + step) % range_uj
            clock.now += 10.0
            meter.sample()
        assume("stood still" not in str(meter.read()))
        assert energy(meter.read()).joules == sum(steps) / 1e6


def test_the_thread_samples_and_ends_with_the_meter() -> None:
    samples = iter(range(1, 1_000_000))
    enough = threading.Event()

    def read() -> int:
        value = next(samples)
        if value > 3:
            enough.set()
        return value * 1_000_000

    with EnergyMeter(Counters("test", "test", (Counter("test", read),)), interval_s=0.001) as meter:
        assert enough.wait(30)
    assert "energy" not in [thread.name for thread in threading.enumerate()]
    assert meter.read() == meter.read()
    assert energy(meter.read()).joules == next(samples) - 2


def test_after_the_end_the_figure_stays_that_of_the_end(tmp_path: Path) -> None:
    cray(tmp_path, energy=5_000)
    with meter_of(tmp_path) as meter:
        cray(tmp_path, energy=5_400)
    cray(tmp_path, energy=9_000)
    assert energy(meter.read()).joules == 400.0


def test_a_meter_that_was_not_started_has_no_figure(tmp_path: Path) -> None:
    assert absence(meter_of(cray(tmp_path, energy=5_000)).read()) == "the meter was not started"


def test_importing_it_loads_no_torch_and_no_nvml() -> None:
    code = "import sys, hpcbench.measure.energy; print({'torch', 'numpy', 'pynvml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
