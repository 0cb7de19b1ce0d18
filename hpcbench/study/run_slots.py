"""The slots of runs side by side: the cores and accelerators of a node, or the nodes, that each run has to itself."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.parallel.threads import cpu_quota
from staging.cores import cores_allowed
from staging.errors import InputError
from staging.units import counted

CORES = Path("/sys/devices/system/cpu")
VISIBLE = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK",),
}
"""Variables that say which accelerators a process sees, in order of precedence; the last one is used if none is set."""
USUAL_CORES = 2
"""Cores of a run, if nothing else decides how many runs share a node."""


@dataclass(frozen=True)
class Devices:
    """The accelerators that this process sees."""

    variable: str = ""
    """The environment variable that chooses among them; empty if there is none."""
    ids: tuple[str, ...] = ()
    """The names by which the variable chooses them."""


@dataclass(frozen=True)
class Slot:
    """What one of several runs side by side has to itself."""

    threads: int = 1
    """Threads of each process of the run."""
    cores: tuple[int, ...] = ()
    """Numbers of the processors, as the system counts them; empty: those of the parent process."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that say which accelerators the run sees."""
    launcher: tuple[str, ...] = ()
    """Command that starts the run's ranks on its own nodes; unset: the run is a process here and starts them itself."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Bind a child that is started inside to the cores from its first instruction on."""
        before = os.sched_getaffinity(0)
        if self.cores:
            os.sched_setaffinity(0, self.cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


def find_devices(environ: Mapping[str, str] = os.environ) -> Devices:
    """The accelerators of this machine that torch finds."""
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return Devices()
    kind = "rocm" if torch.version.hip else accelerator.type
    return named_devices(kind, torch.accelerator.device_count(), environ)


def named_devices(kind: str, count: int, environ: Mapping[str, str]) -> Devices:
    """``count`` accelerators by the names that the environment has for them, otherwise by their numbers."""
    variables = VISIBLE.get(kind, ("",))
    variable = next((name for name in variables if environ.get(name)), variables[-1])
    listed = tuple(name.strip() for name in environ.get(variable, "").split(",") if name.strip())
    return Devices(variable, listed[:count] if len(listed) >= count else tuple(map(str, range(count))))


def local_slots(
    runs: int | None, processes: int, devices: Devices, most: int = sys.maxsize, threads: int | None = None
) -> list[Slot]:
    """Slots for ``runs`` runs of ``processes`` each on this machine; ``None``: as many as fit, but at most ``most``.

    With accelerators each process has one to itself, and more runs than the accelerators allow raise ``InputError``.
    Without accelerators, a run has a core for each of the ``threads`` that its settings give to a process, or usually
    two cores; runs share cores if there are more runs than cores.
    """
    blocks = physical_cores()
    if devices.ids:
        fits = len(devices.ids) // processes
        if fits < 1:
            raise InputError(
                f"a run of {processes} processes needs an accelerator for each, and this machine has "
                f"{len(devices.ids)}; lower parallel.spatial, or set --parallel.accelerator cpu"
            )
        if runs is not None and runs > fits:
            per_run = "one" if processes == 1 else str(processes)
            raise InputError(
                f"--jobs ({runs}) is more than the {counted(fits, 'run')} that the "
                f"{counted(len(devices.ids), 'accelerator')} of this machine "
                f"allow{'s' if len(devices.ids) == 1 else ''}, {per_run} per run; lower it, or set "
                "--parallel.accelerator cpu"
            )
        runs = min(fits, most) if runs is None else runs
    elif runs is None:
        cores = max(USUAL_CORES, processes) if threads is None else processes * threads
        runs = max(1, min(most, usable_cores(blocks) // cores))
    return equal_slots(runs, processes, blocks, devices, processes if devices.ids else 0)


def equal_slots(runs: int, processes: int, blocks: Sequence[Sequence[int]], devices: Devices, gpus: int) -> list[Slot]:
    """Divide the physical cores (each with its hardware threads) and the accelerators, ``gpus`` per run, equally."""
    share = len(blocks) // runs
    threads = max(1, usable_cores(blocks) // (runs * processes))
    slots = []
    for number in range(runs):
        run_blocks = blocks[number * share : (number + 1) * share]
        visible = {devices.variable: ",".join(devices.ids[number * gpus : (number + 1) * gpus])}
        slots.append(Slot(threads, tuple(core for block in run_blocks for core in block), visible if gpus else {}))
    return slots


def usable_cores(blocks: Sequence[Sequence[int]]) -> int:
    """Number of physical cores, or fewer if the CPU quota of the control group is less."""
    return max(1, min(len(blocks), int(cpu_quota() or sys.maxsize)))


def physical_cores(root: Path = CORES) -> list[tuple[int, ...]]:
    """The processors that this process may use, grouped by physical core."""
    processors_by_core: dict[str, list[int]] = {}
    for number in cores_allowed():
        try:
            siblings = (root / f"cpu{number}" / "topology" / "thread_siblings_list").read_text(encoding="utf-8").strip()
        except OSError:
            siblings = str(number)
        processors_by_core.setdefault(siblings, []).append(number)
    return [tuple(processors) for processors in processors_by_core.values()]
