"""What a run measures about its ranks and nodes in addition to its phases: warm steps, CPU time, energy, probes."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hpcbench.measure.device_use import DeviceUse, find_utilization
from hpcbench.measure.energy import Absent, Energy, EnergyMeter, find_energy_counters
from hpcbench.measure.memory import reset_peak_memory
from hpcbench.measure.node_probe import ProbeResult, probe
from hpcbench.measure.power_log import PowerLog
from hpcbench.measure.step_times import StepTimes
from hpcbench.parallel.group import Group
from hpcbench.phase_names import MESSAGE_KINDS, PHASES, STEP_PHASES
from staging.ranks.launch import Launch

NOT_READ = Absent("not read by this rank")
"""The reading of ranks that leave their node's counters to another rank."""


class RankMetrics:
    """The metrics of one rank; made before the clock starts, collectively. ``simulated``: its node is simulated."""

    def __init__(self, group: Group, steps: StepTimes, threads: int, simulated: bool) -> None:
        self.group = group
        self.threads = threads
        self.node = node_name(group.launch, simulated)
        self.host = socket.gethostname()
        hosts = group.all_gather_object(self.host)
        # If one machine simulates several nodes, only one of its ranks may read the counters.
        self.reads = hosts.index(self.host) == group.rank
        self.host_number = list(dict.fromkeys(hosts)).index(self.host)
        self.meter = EnergyMeter(find_energy_counters() if self.reads else NOT_READ)
        self.steps = steps
        self.power_log: PowerLog | None = None
        self.probed: ProbeResult | None = None
        self.device_use = DeviceUse(Absent("the clock was not started"))
        steps.joules = self._joules

    def probe(self, device: torch.device) -> None:
        """Time a matrix product and an all-reduce; collective, before the clock starts."""
        self.probed = probe(self.group, device)
        reset_peak_memory(device)

    def start(self, device: torch.device) -> None:
        """Start to measure energy and the busy time of ``device``, when the clock starts."""
        self.meter.start()
        self.device_use = DeviceUse(find_utilization(device))
        self.device_use.start()

    def log_power(self, folder: Path) -> str:
        """Write the power of this rank's node into ``folder``, from now on until ``stop``; after ``start``.

        Returns the reason if it cannot, else an empty text; also empty if another rank does it.
        """
        if not self.reads:
            return ""
        log = PowerLog(self.meter, folder / f"node_{self.host_number}.txt")
        log.start()
        self.power_log = None if log.trouble else log
        return log.trouble

    def stop(self) -> str:
        """Stop measuring, as the clock has stopped. Returns what was wrong with the power log; empty if nothing was."""
        problem = ""
        if self.power_log is not None:
            self.power_log.stop()
            problem = self.power_log.trouble
            self.power_log = None
        self.meter.stop()
        self.device_use.stop()
        return problem

    def _joules(self) -> float | None:
        reading = self.meter.read() if self.reads else NOT_READ
        return reading.joules if isinstance(reading, Energy) else None

    def whole_run(self) -> dict[str, float]:
        """Seconds of every phase and kind of message since the start of this process, warm or not."""
        spans, communication = self.steps.phases.timer.summary(), self.steps.communication
        messages = dict.fromkeys(MESSAGE_KINDS, 0.0) if communication is None else communication.transfer_s
        seconds_by_name = {name: spans.get(name, 0.0) for name in (*PHASES, "wall")} | messages
        return {f"run_{name}_s": seconds for name, seconds in seconds_by_name.items()}

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
            **{f"{kind}_s": steps.messages_s[kind] if known else None for kind in MESSAGE_KINDS},
            "cpu_s": steps.cpu_s if known else None,
            "energy_j": steps.energy_j if known and self.reads else None,
            "gemm_dtype": None if self.probed is None else self.probed.gemm_dtype,
            "gemm_flops": None if self.probed is None else self.probed.gemm_flops,
            "all_reduce_s": None if self.probed is None else self.probed.all_reduce_s,
            **self.device_use.row(),
            **self.whole_run(),
        }


@dataclass(frozen=True)
class NodesEnergy:
    """Energy of all nodes from run_start to run_stop, as in the summary."""

    joules: float | None
    source: str
    note: str
    """What the joules cover, or why there are none."""


def gather_rank_metrics(metrics: RankMetrics) -> tuple[list[dict[str, Any]], NodesEnergy]:
    """Rows of all ranks, and the energy of all nodes; collective."""
    everyone = metrics.group.all_gather_object(
        (metrics.row(), metrics.host, metrics.meter.read() if metrics.reads else None)
    )
    readings = {host: reading for _, host, reading in everyone if reading is not None}
    return [row for row, _, _ in everyone], added_up(readings)


def added_up(readings: dict[str, Energy | Absent]) -> NodesEnergy:
    """The sum over hosts, which is known only if the energy of every host is."""
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
    """The name of this rank's node; a simulated node has a number."""
    if simulated:
        return f"simulated node {launch.node_rank}"
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
