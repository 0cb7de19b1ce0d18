"""What the model needs of a machine: accelerators, memory bandwidth, peak and links, from the machine's file.

A fact that a file lacks is an interval where other machines bound it, and a refusal in words where they do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.machine import MACHINES, Machine, read_machine
from staging.errors import InputError

GIGA, TERA = 1e9, 1e12
MODEL = re.compile(r"\b(A100|V100|P100|H100|H200|GH200|B200|RTX \d+)\b")


@dataclass(frozen=True)
class Fact:
    """A number, or the ends between which it lies where it is unknown."""

    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high

    @property
    def central(self) -> float:
        """The geometric mean of the ends."""
        return math.sqrt(self.low * self.high)

    def scaled(self, factor: float) -> Fact:
        """Both ends times a factor."""
        return Fact(self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Platform:
    """A machine as the model sees it."""

    name: str
    title: str
    devices: int
    """Of a node; one rank trains on each."""
    accelerator: str
    nodes: int | None
    """That the machine has."""
    memory_bytes_per_s: float
    """Of each device."""
    peak_flop_per_s: float
    """Of each device, in 16 bits."""
    network_bytes_per_s: Fact
    """Of a node, in each direction."""
    link_bytes_per_s: Fact
    """Between two devices of a node, in each direction."""
    charge: float | None = None
    charge_unit: str | None = None
    missing: tuple[str, ...] = ()
    """Fields of the machine's file that are unknown and have an interval instead."""

    @property
    def model(self) -> str:
        """The generation of the accelerator, such as ``A100``; its whole name where it is none that is known."""
        found = MODEL.search(self.accelerator)
        return found.group(1) if found else self.accelerator


def platform_of(machine: Machine, others: Sequence[Machine]) -> Platform:
    """The platform of a machine; ``others`` bound what its file lacks. Raises ``InputError`` that names the field."""
    devices = machine.devices
    needed = {
        "accelerators": devices, "accelerator_memory_gb_s": machine.accelerator_memory_gb_s,
        "peak_16bit_tflop_s": machine.peak_16bit_tflop_s,
    }  # fmt: skip
    lacking = [name for name, value in needed.items() if value is None]
    if lacking:
        raise InputError(
            f"machine {machine.name} has no {' and no '.join(lacking)}, from which the time of a step follows; add "
            f"{'them' if len(lacking) > 1 else 'it'} with a source to a file of your own ({machine.name}.yaml)"
        )
    assert devices is not None
    assert machine.accelerator_memory_gb_s is not None
    assert machine.peak_16bit_tflop_s is not None
    missing = []
    network, link = machine.network_gb_s, machine.accelerator_link_gb_s
    if network is None:
        missing.append("network_gb_s")
        network_fact = known_range(each.network_gb_s / each.devices for each in others
                                   if each.network_gb_s and each.devices and each.accelerators).scaled(devices)  # fmt: skip
    else:
        network_fact = Fact(network, network)
    if link is None and devices > 1:
        missing.append("accelerator_link_gb_s")
    link_fact = known_range(each.accelerator_link_gb_s for each in others) if link is None else Fact(link, link)
    return Platform(
        machine.name, machine.title, devices, machine.accelerator or machine.processor or "", machine.nodes,
        machine.accelerator_memory_gb_s * GIGA, machine.peak_16bit_tflop_s * TERA,
        network_fact.scaled(GIGA), link_fact.scaled(GIGA), machine.charge, machine.charge_unit, tuple(missing),
    )  # fmt: skip


def known_range(values: Iterable[float | None]) -> Fact:
    """The least and the most of what machines have."""
    found = [value for value in values if value]
    return Fact(min(found), max(found))


def shipped_machines(folder: Path = MACHINES) -> list[Machine]:
    """The machines of the suite."""
    return [read_machine(path) for path in sorted(folder.glob("*.yaml"))]
