"""Counters of energy as files of a tree like sysfs, and what is read from them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.measure.energy import Absent, Counters, Energy, EnergyMeter, find_energy_counters

RANGE_UJ = 262_143_328_850
"""Range of a package's counter on Intel's servers: 32 bits of 2^-14 J."""
DRAM_RANGE_UJ = 65_712_999_613


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests give the package that they want; a machine's own GPUs are not among the facts."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


def write(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def cray(root: Path, startup: int = 1_700_000_000, generation: int = 3, us: int = 1, **joules: object) -> Path:
    """Cray's files: a value and the time at which it was read, in microseconds."""
    files: dict[str, object] = {f"sys/cray/pm_counters/{name}": f"{value} J {us} us" for name, value in joules.items()}
    files["sys/cray/pm_counters/startup"] = f"{startup} {us} us"
    files["sys/cray/pm_counters/generation"] = f"{generation} {us} us"
    files["sys/cray/pm_counters/power"] = f"800 W {us} us"
    return write(root, files)


def zone(root: Path, number: str, name: str, energy_uj: object, kind: str = "intel-rapl") -> Path:
    folder = f"sys/class/powercap/{kind}:{number}"
    range_uj = DRAM_RANGE_UJ if name == "dram" else RANGE_UJ
    return write(
        root, {f"{folder}/name": name, f"{folder}/energy_uj": energy_uj, f"{folder}/max_energy_range_uj": range_uj}
    )


def counters(root: Path) -> Counters:
    found = find_energy_counters(root)
    assert isinstance(found, Counters), found
    return found


def absence(reading: object) -> str:
    assert isinstance(reading, Absent)
    return reading.reason


def energy(reading: Energy | Absent) -> Energy:
    assert isinstance(reading, Energy), reading
    return reading


def meter_of(root: Path, clock: Callable[[], float] | None = None) -> EnergyMeter:
    """A meter whose thread does not get to sample within a test."""
    return EnergyMeter(counters(root), interval_s=3600.0, clock=clock or Clock())


class NVMLError(Exception):
    pass


def nvml(millijoules: list[int | None], driver: bool = True) -> Any:
    """The module ``pynvml`` for GPUs with these counts; one without is older than Volta."""

    def start() -> None:
        if not driver:
            raise NVMLError("NVML Shared Library Not Found")

    def total(handle: int) -> int:
        count = millijoules[handle]
        if count is None:
            raise NVMLError("Not Supported")
        return count

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=start,
        nvmlDeviceGetCount=lambda: len(millijoules),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=total,
    )
