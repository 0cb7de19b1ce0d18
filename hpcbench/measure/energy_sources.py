"""Counters of a node's energy: Cray's for the whole node, else those of accelerators and (through RAPL) processors."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from staging.units import counted

PM_LINE = re.compile(r"(\d+) J \d+ us")
DRIVERS = ("amdgpu", "i915", "xe")
"""Drivers whose hwmon folder represents a whole device; Intel's ``i915_gt<n>`` is a part of ``i915``."""
PACKAGE_W, MEMORY_W = 3000.0, 1000.0
"""More than a processor package, or its memory, ever draws; for zones that do not state their maximum."""
SUDDEN_W = 500.0
"""A package may go from idle to this between two readings, and no bound is below it: some firmware says too little."""
MARGIN = 2.0
"""Ratio of what a zone can draw for seconds to the power that it says it can sustain."""


@dataclass(frozen=True)
class Absent:
    """Says that there is no figure, and why."""

    reason: str


@dataclass(frozen=True)
class Counter:
    """A count of energy that only grows.

    ``read_uj`` returns microjoules. It raises ``OSError`` or ``ValueError`` if that fails, and ``CounterRestartError``
    if the count began anew. After ``range_uj`` the count continues from zero; without a range it never does. ``most_w``
    is a power in watts above what the part can draw; it distinguishes a wrap of the count from a reset.
    """

    part: str
    read_uj: Callable[[], int]
    range_uj: int | None = None
    most_w: float = PACKAGE_W

    @property
    def wrap_s(self) -> float:
        """The fewest seconds in which the count can go through its range once; infinite without a range."""
        return inf if self.range_uj is None else self.range_uj / 1e6 / self.most_w


class CounterRestartError(Exception):
    """The counter restarted, so its count does not continue the earlier one."""


@dataclass(frozen=True)
class Counters:
    """Counters whose sum is the energy of what ``covers`` names.

    ``inside`` holds counters of its parts; the parts may overlap and need not add up to the whole. ``missing`` says why
    other sources were not used.
    """

    source: str
    covers: str
    summed: tuple[Counter, ...]
    inside: tuple[Counter, ...] = ()
    missing: tuple[str, ...] = ()


def find_energy_counters(root: Path = Path("/")) -> Counters | Absent:
    """Return the counters of this node: that of the whole node alone, else all those of accelerators and processors.

    Accelerators count whether or not this job sees them (``CUDA_VISIBLE_DEVICES`` does not matter), because a node is
    charged as a whole. If a control group hides some, ``covers`` says how many of how many are included. A sum of parts
    is less than the node, which also has a network, disks and power supplies. ``root`` is the folder that holds
    ``sys``.
    """
    node = _cray(root / "sys/cray/pm_counters")
    if isinstance(node, Counters):
        return node
    tried = [node, _nvml(), _hwmon(root / "sys/class/drm"), _rapl(root / "sys/class/powercap")]
    parts = [source for source in tried if isinstance(source, Counters)]
    missing = tuple(source.reason for source in tried if isinstance(source, Absent))
    if not parts:
        return Absent("no energy counter: " + "; ".join(missing))
    return Counters(
        source=" + ".join(part.source for part in parts),
        covers=", ".join(part.covers for part in parts),
        summed=tuple(counter for part in parts for counter in part.summed),
        missing=missing,
    )


def _cray(folder: Path) -> Counters | Absent:
    """HPE Cray's counters, see "User Access to Compute Node Power Data" in the documentation of CSM.

    ``energy`` covers the node with its accelerators, and is updated about ten times a second. ``startup`` changes when
    the controller of the blade restarts, after which the counts do not continue the earlier ones. ``generation`` only
    says that a power cap was changed.
    """
    if not folder.is_dir():
        return Absent(f"pm_counters: no {folder}")
    try:
        startup = _startup(folder)
        node = _checked(Counter("node", partial(_cray_uj, folder / "energy", startup)))
    except (OSError, ValueError) as error:
        return Absent(f"pm_counters: {error}")
    inside = []
    for path in sorted(folder.glob("*_energy")):
        with contextlib.suppress(OSError, ValueError):
            inside.append(_checked(Counter(path.name.removesuffix("_energy"), partial(_cray_uj, path, startup))))
    return Counters("pm_counters", "node", (node,), tuple(inside))


def _cray_uj(path: Path, startup: str) -> int:
    text = _text(path)
    line = PM_LINE.fullmatch(text)
    if line is None:
        raise ValueError(f"{path} holds {text!r}, not joules and microseconds as in '12 J 34 us'")
    if _startup(path.parent) != startup:
        raise CounterRestartError("the blade controller was restarted")
    return int(line[1]) * 1_000_000


def _startup(folder: Path) -> str:
    """The number of starts, without the time at which it was read."""
    return _text(folder / "startup").partition(" ")[0]


def _nvml() -> Counters | Absent:
    """``nvmlDeviceGetTotalEnergyConsumption`` (NVML API reference): since the driver was loaded, for Volta and later.

    NVML stays initialised until the process ends.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return Absent('NVML: the package nvidia-ml-py is not installed (pip install "hpcbench-ml[energy]")')
    try:
        nvml.nvmlInit()
        total = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return Absent(f"NVML: {error}")
    counters = []
    for index in range(total):
        with contextlib.suppress(nvml.NVMLError, AttributeError, OSError, ValueError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            counters.append(_checked(Counter(f"GPU {index}", partial(_nvml_uj, nvml, handle))))
    if not counters:
        return Absent(f"NVML: none of {counted(total, 'GPU')} has an energy counter")
    return Counters("NVML", _gpus(len(counters), total), tuple(counters))


def _nvml_uj(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * 1_000
    except nvml.NVMLError as error:
        raise OSError(f"NVML: {error}") from error


def _hwmon(folder: Path) -> Counters | Absent:
    """``energy1_input`` (card) or ``energy2_input`` (package) of a GPU's driver, in microjoules.

    See "sysfs-driver-intel-i915-hwmon" and "sysfs-driver-intel-xe-hwmon" in the kernel's ABI documentation. The kernel
    accounts for wraps of Intel's registers if it is asked in time. The page "GPU Power/Thermal Controls and Monitoring"
    lists no energy for amdgpu, so AMD's GPUs count only where a newer driver reports it.
    """
    counters, total, drivers = [], 0, set()
    for device in sorted({path.resolve() for path in folder.glob("card*/device/hwmon/hwmon*")}):
        try:
            driver = _text(device / "name")
            if driver not in DRIVERS:
                continue
            total += 1
            files = (device / "energy1_input", device / "energy2_input")
            path = next((path for path in files if path.exists()), files[0])
            counters.append(_checked(Counter(f"{driver} {total - 1}", partial(_number, path))))
            drivers.add(driver)
        except (OSError, ValueError):
            continue
    if not counters:
        return Absent(
            f"hwmon: none of {counted(total, 'GPU')} has an energy counter" if total else f"hwmon: no GPU in {folder}"
        )
    return Counters(" + ".join(sorted(drivers)), _gpus(len(counters), total), tuple(counters))


def _rapl(folder: Path) -> Counters | Absent:
    """Packages of the kernel's "Power Capping Framework", and memory if all packages have a counter for it.

    ``core`` and ``uncore`` are inside the package; ``dram`` is not, though its zone is. ``psys`` is left out: the
    manufacturer chooses what it covers, and whether it counts. ``intel-rapl-mmio`` repeats a package.
    """
    packages, memory = [], []
    try:
        for zone in sorted(folder.glob("intel-rapl:*")):
            name = _text(zone / "name")
            if name.startswith("package"):
                packages.append(_zone(zone, name, PACKAGE_W))
            elif name == "dram":
                package = _text(folder / zone.name.rpartition(":")[0] / "name")
                with contextlib.suppress(ValueError):
                    memory.append(_zone(zone, f"dram of {package}", MEMORY_W))
    except PermissionError as error:
        return Absent(f"RAPL: {error.filename} is for root alone, as it is since Linux 5.10")
    except (OSError, ValueError) as error:
        return Absent(f"RAPL: {error}")
    if not packages:
        return Absent(f"RAPL: no package in {folder}")
    if len(memory) != len(packages):
        return Counters("RAPL", "processors", tuple(packages))
    return Counters("RAPL", "processors and memory", (*packages, *memory))


def _zone(zone: Path, part: str, most_w: float) -> Counter:
    range_uj = _number(zone / "max_energy_range_uj")
    return _checked(Counter(part, partial(_number, zone / "energy_uj"), range_uj, _most_w(zone, most_w)))


def _most_w(zone: Path, otherwise: float) -> float:
    """A power in watts above what the zone draws, from the largest ``constraint_<n>_max_power_uw`` that it states."""
    stated = []
    for path in zone.glob("constraint_*_max_power_uw"):
        with contextlib.suppress(OSError, ValueError):
            stated.append(_number(path) / 1e6)
    most = max(stated, default=0.0)
    return max(MARGIN * most, SUDDEN_W) if most else otherwise


def _checked(counter: Counter) -> Counter:
    """Return the counter if it counts; raise ``ValueError`` if it stands at zero, as with no hardware behind it."""
    if counter.read_uj() == 0 or counter.range_uj == 0:
        raise ValueError(f"the counter of {counter.part} stands at 0")
    return counter


def _gpus(known: int, total: int) -> str:
    return counted(known, "GPU") if known == total else f"{known} of {total} GPUs"


def _number(path: Path) -> int:
    text = _text(path)
    if not text.isdigit():
        raise ValueError(f"{path} holds {text!r}, not a count of microjoules")
    return int(text)


def _text(path: Path) -> str:
    """Return the content of a sysfs file. Cray's files occasionally have to be read again (EAGAIN)."""
    for _ in range(10):
        with path.open("rb", buffering=0) as file:
            content = file.read()
        if content is not None:
            return content.decode("ascii").strip()
    raise OSError(f"{path} is busy")
