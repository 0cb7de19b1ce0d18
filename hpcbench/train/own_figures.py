"""What a run measures of its ranks and nodes beside its phases: warm steps, processor time, energy, probes."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpcbench.measure.energy import Absent, Energy, EnergyMeter, find_energy_counters
from hpcbench.measure.memory import reset_peak_memory
from hpcbench.measure.node_probe import ProbeResult, probe
from hpcbench.measure.step_times import STEP_PHASES, StepTimes

if TYPE_CHECKING:
    import torch

    from hpcbench.parallel.group import Group
    from staging.ranks.launch import Launch

NOT_READ = Absent("not read by this rank")
"""Of ranks that leave the counters of their node to another."""


class OwnFigures:
    """Of one rank; made before the clock starts, which is collective. ``simulated``: its node is a pretended one."""

    def __init__(self, group: Group, steps: StepTimes, threads: int, simulated: bool) -> None:
        self.group = group
        self.threads = threads
        self.node = node_name(group.launch, simulated)
        self.host = socket.gethostname()
        hosts = group.all_gather_object(self.host)
        # Of one machine that plays several nodes, only one rank may read the counters.
        self.reads = hosts.index(self.host) == group.rank
        self.meter = EnergyMeter(find_energy_counters() if self.reads else NOT_READ)
        self.steps = steps
        self.probed: ProbeResult | None = None
        steps.joules = self._joules

    def start(self, device: torch.device, probes: bool) -> None:
        """The clock starts next; collective where it ``probes``."""
        if probes:
            self.probed = probe(self.group, device)
            reset_peak_memory(device)
        self.meter.start()

    def stop(self) -> None:
        """The clock has stopped."""
        self.meter.stop()

    def _joules(self) -> float | None:
        found = self.meter.read() if self.reads else NOT_READ
        return found.joules if isinstance(found, Energy) else None

    def row(self) -> dict[str, Any]:
        """This rank's row of ``ranks.csv``; what is not known is unset."""
        steps = self.steps
        known = steps.steps > 0
        return {
            "rank": self.group.launch.rank,
            "node": self.node,
            "local_rank": self.group.launch.local_rank,
            "threads": self.threads,
            "steps": steps.steps,
            "samples": steps.samples,
            "wall_s": steps.wall_s if known else None,
            **{f"{name}_s": steps.phases_s[name] if known else None for name in STEP_PHASES},
            "cpu_s": steps.cpu_s if known else None,
            "energy_j": steps.energy_j if known and self.reads else None,
            "gemm_flops": None if self.probed is None else self.probed.gemm_flops,
            "all_reduce_s": None if self.probed is None else self.probed.all_reduce_s,
        }


@dataclass(frozen=True)
class NodesEnergy:
    """Energy of all nodes from run_start to run_stop, as the summary has it."""

    joules: float | None
    source: str
    note: str
    """What the joules cover, or why there are none."""


def all_figures(own: OwnFigures, resumed: bool) -> tuple[list[dict[str, Any]], NodesEnergy]:
    """Rows of all ranks, and the energy of all nodes; collective."""
    everyone = own.group.all_gather_object((own.row(), own.host, own.meter.read() if own.reads else None))
    readings = {host: reading for _, host, reading in everyone if reading is not None}
    energy = added_up(readings)
    if energy.joules is not None and resumed:
        energy = replace(energy, note=f"{energy.note}, since the run was resumed")
    return [row for row, _, _ in everyone], energy


def added_up(readings: dict[str, Energy | Absent]) -> NodesEnergy:
    """The sum over hosts, which is known only if that of each is."""
    absent = {host: reading.reason for host, reading in readings.items() if isinstance(reading, Absent)}
    known = [reading for reading in readings.values() if isinstance(reading, Energy)]
    if absent:
        host, reason = next(iter(absent.items()))
        where = f"{host}: " if known else ""
        return NodesEnergy(None, "", f"not measured: {where}{reason}")
    nodes = Counter((reading.source, reading.covers) for reading in known)
    note = "; ".join(f"{covers} of {count} node{'s' if count > 1 else ''}" for (_, covers), count in nodes.items())
    sources = dict.fromkeys(source for source, _ in nodes)
    return NodesEnergy(sum(reading.joules for reading in known), ", ".join(sources), note)


def node_name(launch: Launch, simulated: bool) -> str:
    """The node of this rank as people know it; a simulated one has a number."""
    if simulated:
        return f"simulated node {launch.node_rank}"
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
