"""Power logs hold the energy of a node: their power times their time is what the counters counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mlperf_logging.compliance_checker.mlp_parser import parse_file
from mlperf_logging.result_summarizer.result_summarizer import _compute_power_node

from hpcbench.measure.energy import Absent, Counters, EnergyMeter
from hpcbench.measure.energy_sources import Counter
from hpcbench.measure.power_log import PowerLog, set_power_aside
from hpcbench.submission.power_logs import NodePower, power_of
from tests.hpcbench.measure.energy_counters import Clock


class Node:
    """A node whose counter and clock a test sets."""

    def __init__(self, path: Path) -> None:
        self.uj, self.broken = 5_000_000, False
        self.clock = Clock()
        found = Counters("RAPL", "2 processors", (Counter("node", self.read),))
        self.meter = EnergyMeter(found, interval_s=3600.0, clock=self.clock)
        self.log = PowerLog(self.meter, path, interval_s=3600.0, clock=self.clock)

    def read(self) -> int:
        if self.broken:
            raise OSError("gone")
        return self.uj

    def draw(self, joules: float, seconds: float) -> None:
        self.uj += round(joules * 1e6)
        self.clock.now += seconds


def official_joules(path: Path) -> float:
    """What the official tool reads, of a run as long as the log."""
    lines, errors = parse_file(str(path), "3.0.0")
    assert not errors
    times = [line.timestamp for line in lines]
    return float(_compute_power_node(lines, max(times) - min(times)))


def keys(path: Path) -> list[str]:
    return [json.loads(line.removeprefix(":::MLLOG "))["key"] for line in path.read_text().splitlines()]


@given(st.lists(st.tuples(st.floats(0.5, 5000.0), st.floats(0.05, 30.0)), min_size=1, max_size=30))
@example([(1867.0, 2.9999999999999964)])
def test_the_official_tool_finds_the_joules_of_the_counter(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[float, float]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "power" / "node_0.txt"
    node = Node(path)
    node.meter.start()
    node.log.start()
    for joules, seconds in drawn[:-1]:
        node.draw(joules, seconds)
        node.log.sample()
    node.draw(*drawn[-1])
    node.log.stop()
    total, reading_s = sum(joules for joules, _ in drawn), min(seconds for _, seconds in drawn)
    # Times are whole milliseconds, watts have three decimals, and the two errors add.
    rounding = total * (1e-3 / reading_s + 1e-9) + 1e-3 * sum(s for _, s in drawn)
    assert official_joules(path) == pytest.approx(total, rel=0, abs=rounding)
    assert power_of(path.parents[1]) == [NodePower(len(drawn), True, "2 processors", "RAPL")]
    node.meter.stop()


def test_a_reading_is_the_mean_power_since_the_one_before(tmp_path: Path) -> None:
    node = Node(tmp_path / "power" / "node_3.txt")
    node.meter.start()
    node.log.start()
    for joules, seconds in ((300.0, 1.0), (500.0, 2.0), (0.0, 1.0)):
        node.draw(joules, seconds)
        node.log.sample()
    node.log.sample()  # within the same millisecond
    node.log.stop()
    entries = [json.loads(line.removeprefix(":::MLLOG ")) for line in node.log.path.read_text().splitlines()]
    assert [entry["key"] for entry in entries] == [
        "power_measurement_start", *["power_reading"] * 3, "power_measurement_stop",
    ]  # fmt: skip
    assert [entry["value"] for entry in entries] == [None, 300.0, 250.0, 0.0, None]
    first = entries[0]["time_ms"]
    assert [entry["time_ms"] - first for entry in entries] == [0, 1000, 3000, 4000, 4000]
    assert entries[0]["metadata"] == {"source": "RAPL", "covers": "2 processors"}
    node.meter.stop()


def test_energy_that_is_not_known_is_no_log(tmp_path: Path) -> None:
    meter = EnergyMeter(Absent("no energy counter: none"))
    log = PowerLog(meter, tmp_path / "power" / "node_0.txt")
    log.start()
    log.stop()
    assert log.trouble == "no energy counter: none"
    assert not (tmp_path / "power").exists()


def test_a_reading_that_cannot_be_had_is_in_the_next(tmp_path: Path) -> None:
    node = Node(tmp_path / "power" / "node_0.txt")
    node.meter.start()
    node.log.start()
    node.broken = True
    node.draw(100.0, 1.0)
    node.log.sample()
    node.broken = False
    node.draw(300.0, 1.0)
    node.log.stop()
    assert official_joules(node.log.path) == pytest.approx(400.0)
    assert keys(node.log.path) == ["power_measurement_start", "power_reading", "power_measurement_stop"]
    node.meter.stop()


def test_a_full_disk_ends_the_log(tmp_path: Path) -> None:
    node = Node(Path("/dev/full"))
    node.meter.start()
    node.log.start()
    assert node.log.trouble == "/dev/full cannot be written (No space left on device)"
    node.log.stop()
    assert node.log.trouble == "/dev/full cannot be written (No space left on device)"
    node.meter.stop()


def test_a_counter_that_is_lost_ends_the_log_without_a_stop(tmp_path: Path) -> None:
    node = Node(tmp_path / "power" / "node_0.txt")
    node.meter.start()
    node.log.start()
    node.draw(100.0, 1.0)
    node.log.sample()
    node.broken = True
    node.draw(100.0, 1.0)
    node.log.sample()
    node.log.stop()
    assert "gone" in node.log.trouble
    assert keys(node.log.path) == ["power_measurement_start", "power_reading"]
    assert not power_of(tmp_path)[0].ended
    node.meter.stop()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "power").write_text("")
    node = Node(tmp_path / "power" / "node_0.txt")
    node.meter.start()
    node.log.start()
    node.log.stop()
    assert node.log.trouble == f"{node.log.path.parent} cannot be written (File exists)"
    node.meter.stop()


def test_the_thread_reads_at_its_interval(tmp_path: Path) -> None:
    joules = 0

    def count() -> int:
        nonlocal joules
        joules += 1_000_000
        return joules

    meter = EnergyMeter(Counters("fake", "node", (Counter("node", count),)))
    with meter:
        log = PowerLog(meter, tmp_path / "power" / "node_0.txt", interval_s=0.01)
        log.start()
        log._stop.wait(0.5)
        log.stop()
    assert 2 <= power_of(tmp_path)[0].readings <= 60
    assert keys(log.path)[-1] == "power_measurement_stop"


def test_logs_of_earlier_attempts_are_set_aside(tmp_path: Path) -> None:
    set_power_aside(tmp_path)
    for text in ("first", "second"):
        (tmp_path / "power").mkdir()
        (tmp_path / "power" / "node_0.txt").write_text(text)
        set_power_aside(tmp_path)
    assert [(tmp_path / f"power-part{k}" / "node_0.txt").read_text() for k in (1, 2)] == ["first", "second"]
    assert not (tmp_path / "power").exists()


@pytest.mark.parametrize("text", ["", "garbage\n", ":::MLLOG [1]\n", ":::MLLOG " + "[" * 100_000, ":::MLLOG {}\n"])
def test_hostile_logs_have_no_readings(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node_0.txt"
    path.write_text(text)
    assert NodePower.read(path) == NodePower(0, False, "", "")
