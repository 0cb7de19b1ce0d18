"""Energy of GPUs: by NVML, or by the files of their drivers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcbench.measure.energy import Energy, find_energy_counters
from tests.hpcbench.measure.energy_counters import (
    absence,
    counters,
    energy,
    meter_of,
    nvml,
    without_nvml,
    write,
    zone,
)

__all__ = ["without_nvml"]


def test_all_gpus_of_the_node_count_whatever_the_job_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    millijoules: list[int | None] = [1_000, 2_000, 3_000, 4_000]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(millijoules))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with meter_of(tmp_path) as meter:
        millijoules[:] = [1_500, 2_250, 3_001, 4_000]
        parts = {"GPU 0": 0.5, "GPU 1": 0.25, "GPU 2": 0.001, "GPU 3": 0.0}
        assert energy(meter.read()) == Energy(0.751, parts, "NVML", "4 GPUs")


def test_gpus_are_added_to_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    millijoules: list[int | None] = [9_000]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(millijoules))
    zone(tmp_path, "0", "package-0", 1_000_000)
    with meter_of(tmp_path) as meter:
        millijoules[0] = 10_000
        zone(tmp_path, "0", "package-0", 3_000_000)
        parts = {"GPU 0": 1.0, "package-0": 2.0}
        assert energy(meter.read()) == Energy(3.0, parts, "NVML + RAPL", "1 GPU, processors")


def test_a_gpu_without_a_counter_is_said_to_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([None, 5, 0]))
    found = counters(tmp_path)
    assert (found.covers, [counter.part for counter in found.summed]) == ("1 of 3 GPUs", ["GPU 1"])


def test_gpus_that_do_not_count_are_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([None, None]))
    assert "NVML: none of 2 GPUs has an energy counter" in absence(find_energy_counters(tmp_path))
    old = nvml([1])
    del old.nvmlDeviceGetTotalEnergyConsumption
    monkeypatch.setitem(sys.modules, "pynvml", old)
    assert "NVML: none of 1 GPU has an energy counter" in absence(find_energy_counters(tmp_path))


def test_a_machine_without_the_driver_has_no_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([], driver=False))
    assert "NVML: NVML Shared Library Not Found" in absence(find_energy_counters(tmp_path))


def test_a_gpu_that_falls_off_the_bus_makes_the_reading_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    millijoules: list[int | None] = [9_000, 9_000]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(millijoules))
    with meter_of(tmp_path) as meter:
        millijoules[1] = None
        assert absence(meter.read()) == "GPU 1: NVML: Not Supported"


def gpu(root: Path, card: int, driver: str, file: str = "energy1_input", uj: object = None, part: int = 0) -> Path:
    folder = f"sys/class/drm/card{card}/device/hwmon/hwmon{10 * card + part}"
    return write(root, {f"{folder}/name": driver} | ({} if uj is None else {f"{folder}/{file}": uj}))


def test_intels_gpus_count_as_devices_and_not_by_tile(tmp_path: Path) -> None:
    for card in (0, 1):
        gpu(tmp_path, card, "i915", uj=5_000_000)
        gpu(tmp_path, card, "i915_gt0", uj=2_000_000, part=1)
    with meter_of(tmp_path) as meter:
        gpu(tmp_path, 0, "i915", uj=6_500_000)
        gpu(tmp_path, 0, "i915_gt0", uj=3_000_000, part=1)
        assert energy(meter.read()) == Energy(1.5, {"i915 0": 1.5, "i915 1": 0.0}, "i915", "2 GPUs")


def test_a_card_counts_before_its_package(tmp_path: Path) -> None:
    gpu(tmp_path, 0, "xe", file="energy2_input", uj=1_000_000)
    gpu(tmp_path, 1, "xe", file="energy2_input", uj=1_000_000)
    gpu(tmp_path, 1, "xe", uj=2_000_000)
    with meter_of(tmp_path) as meter:
        gpu(tmp_path, 0, "xe", file="energy2_input", uj=1_250_000)
        gpu(tmp_path, 1, "xe", file="energy2_input", uj=9_000_000)
        gpu(tmp_path, 1, "xe", uj=2_500_000)
        assert energy(meter.read()) == Energy(0.75, {"xe 0": 0.25, "xe 1": 0.5}, "xe", "2 GPUs")


def test_two_names_of_a_card_are_one_gpu(tmp_path: Path) -> None:
    gpu(tmp_path, 0, "i915", uj=5_000_000)
    (tmp_path / "sys/class/drm/card1").symlink_to("card0")
    assert counters(tmp_path).covers == "1 GPU"


def test_amds_gpus_are_absent_unless_the_driver_counts(tmp_path: Path) -> None:
    gpu(tmp_path, 0, "amdgpu")
    gpu(tmp_path, 1, "amdgpu")
    assert "hwmon: none of 2 GPUs has an energy counter" in absence(find_energy_counters(tmp_path))
    found = counters(gpu(tmp_path, 1, "amdgpu", uj=7))
    assert (found.source, found.covers) == ("amdgpu", "1 of 2 GPUs")
