"""The system description of an MLPerf submission, filled in from the machine where possible."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hpcbench import DISTRIBUTION, __version__

if TYPE_CHECKING:
    from hpcbench.config.schema import RunConfig

PACKAGES = ("torch", "lightning-fabric", "lightning", "numpy", "scipy", "h5py", "mpi4py", "mlperf-logging")


def system_description(
    config: RunConfig, nodes: int = 1, storage: Path | None = None, accelerators: int = 0
) -> dict[str, Any]:
    """Return the 33 keys that ``mlperf_logging.system_desc_checker`` requires for ``hpc``, rules 3.0.0.

    All values are strings except ``other_software_stack``, which maps names to versions. What the machine does not
    report is an empty string, to be filled in by hand. ``storage`` is the folder whose filesystem is described: by
    default the dataset's, else the current one. Processors and accelerators are counted per node, cores and vCPUs per
    processor. The ranks of a node use ``accelerators`` of them: a launcher may show this rank only its own.
    """
    submission = config.submission
    return {
        "submitter": submission.org,
        "division": submission.division,
        "status": submission.status,
        "system_name": submission.platform or platform.node() or "unnamed",
        "number_of_nodes": str(nodes),
        **processor(),
        **memory_and_storage(storage or Path(config.data.root or ".")),
        "host_networking": networking(),
        "host_networking_topology": "",
        **accelerator(accelerators),
        "cooling": "",
        "hw_notes": "",
        "framework": f"PyTorch {version('torch')}",
        "other_software_stack": software(),
        "operating_system": operating_system(),
        "sw_notes": "",
    }


def processor() -> dict[str, str]:
    """Keys that describe the processor, from ``lscpu``."""
    cpu = _lscpu()
    sockets = int(cpu.get("Socket(s)", "1")) if cpu.get("Socket(s)", "1").isdigit() else 1
    clock = psutil.cpu_freq()
    megahertz = (clock.max or clock.current) if clock else 0.0
    # "L2 cache" or, under "Caches (sum of all)", "L2".
    caches = [f"{name.split()[0]} {size}" for name, size in cpu.items() if re.fullmatch(r"L\d[di]?( cache)?", name)]
    return {
        "host_processors_per_node": str(sockets),
        "host_processor_model_name": cpu.get("Model name", platform.processor() or platform.machine()),
        "host_processor_core_count": cpu.get("Core(s) per socket", str(psutil.cpu_count(logical=False) or "")),
        "host_processor_vcpu_count": str((psutil.cpu_count() or 1) // sockets),
        "host_processor_frequency": f"{megahertz:.0f} MHz" if megahertz else "",
        "host_processor_caches": ", ".join(caches),
        "host_processor_interconnect": "",
    }


def memory_and_storage(folder: Path) -> dict[str, str]:
    """Keys that describe memory, and the filesystem of ``folder`` or of its nearest existing parent."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return {
        "host_memory_capacity": _gib(psutil.virtual_memory().total),
        "host_memory_configuration": "",
        "host_storage_type": filesystem(folder),
        "host_storage_capacity": _gib(shutil.disk_usage(folder).total),
    }


def filesystem(folder: Path) -> str:
    """Return the type of the filesystem of ``folder``, such as ``ext4``, ``lustre`` or ``tmpfs``; empty if unknown."""
    mounts: list[tuple[int, str]] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
            _, mount, kind, *_ = line.split(" ")
            if folder.resolve().is_relative_to(mount.replace("\\040", " ")):
                mounts.append((len(mount), kind))
    return max(mounts)[1] if mounts else ""


def networking(root: Path = Path("/sys/class")) -> str:
    """Network interfaces with their speed: InfiniBand ports, and Ethernet interfaces that are real devices and up."""
    interfaces = []
    for rate in sorted(root.glob("infiniband/*/ports/*/rate")):
        with contextlib.suppress(OSError):
            interfaces.append(f"{rate.parts[-4]} {rate.read_text(encoding='ascii').strip()}")
    for speed in sorted(root.glob("net/*/speed")):
        with contextlib.suppress(OSError, ValueError):
            megabits = int(speed.read_text(encoding="ascii"))
            if megabits > 0 and (speed.parent / "device").exists():
                interfaces.append(f"{speed.parent.name} {megabits / 1000:g} Gb/sec")
    return ", ".join(interfaces)


def accelerator(used: int = 0) -> dict[str, str]:
    """Keys that describe the accelerators that torch finds, of any kind; at least ``used`` of them if it finds one."""
    import torch

    description = {
        "accelerators_per_node": "0",
        "accelerator_model_name": "",
        "accelerator_host_interconnect": "",
        "accelerator_frequency": "",
        "accelerator_on-chip_memories": "",
        "accelerator_memory_configuration": "",
        "accelerator_memory_capacity": "",
        "accelerator_interconnect": "",
        "accelerator_interconnect_topology": "",
    }
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None:
        return description
    description["accelerators_per_node"] = str(max(torch.accelerator.device_count(), used))
    with contextlib.suppress(AttributeError, RuntimeError):
        properties = torch.get_device_module(device).get_device_properties(0)
        description["accelerator_model_name"] = str(properties.name)
        description["accelerator_memory_capacity"] = _gib(properties.total_memory)
        # in kHz; not every kind reports it
        description["accelerator_frequency"] = f"{properties.clock_rate / 1000:.0f} MHz"
    return description


def version(name: str) -> str:
    """Return the version of an installed package; torch's includes its build, such as ``+cu130``.

    Raises ``PackageNotFoundError`` if the package is not installed.
    """
    if name == "torch":
        import torch

        return str(torch.__version__)
    return metadata.version(name)


def software() -> dict[str, str]:
    """Versions of the packages that matter, and of the toolkits that torch was built with."""
    import torch

    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = version(name)
    versions[DISTRIBUTION] = __version__  # of the code that runs, which need not be the installed one
    toolkits = {name: value for name, value in vars(torch.version).items() if isinstance(value, str)}
    hidden = ("git_version",)
    return versions | {
        f"torch_{name}": value for name, value in toolkits.items() if not name.startswith("_") and name not in hidden
    }


def operating_system() -> str:
    """Name of the distribution and release of the kernel."""
    name = platform.system()
    with contextlib.suppress(OSError):
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{name}, kernel {platform.release()}"


def _lscpu() -> dict[str, str]:
    """What ``lscpu`` reports about this machine; empty if there is no ``lscpu``."""
    try:
        result = subprocess.run(
            ["lscpu", "--json"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        return _flatten(json.loads(result.stdout)["lscpu"])
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return {}


def _flatten(entries: list[dict[str, Any]]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for entry in entries:
        flat[entry["field"].rstrip(":")] = entry.get("data") or ""
        flat |= _flatten(entry.get("children", []))
    return flat


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
