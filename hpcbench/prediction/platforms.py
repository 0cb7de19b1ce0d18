"""What the model needs of a machine: accelerators, memory bandwidth, peak and links, from the machine's file.

A fact that a file lacks becomes an interval where other machines bound it, and an error message where they do not.
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
PEAK = "peak_16bit_tflop_s"
FEWEST_ALIKE = 3
MODEL = re.compile(r"\b(A100|V100|P100|H100|H200|GH200|B200|RTX \d+)\b")


@dataclass(frozen=True)
class Fact:
    """A number, or the ends of the interval that it lies in where it is unknown."""

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
    """Devices of a node; one rank trains on each."""
    accelerator: str
    nodes: int | None
    """Nodes that the machine has."""
    memory_bytes_per_s: float
    """Memory bandwidth of each device."""
    peak_flop_per_s: float
    """Peak of each device, in 16 bits where nothing else is asked for."""
    memory_bytes: float | None
    """Memory of each device."""
    network_bytes_per_s: Fact
    """Network bandwidth of a node, in each direction."""
    link_bytes_per_s: Fact
    """Between two devices of a node, in each direction."""
    charge: float | None = None
    charge_unit: str | None = None
    missing: tuple[str, ...] = ()
    """Fields of the machine's file that are unknown and have an interval instead."""

    @property
    def model(self) -> str:
        """The generation of the accelerator; see ``accelerator_model``."""
        return accelerator_model(self.accelerator)


def platform_of(machine: Machine, others: Sequence[Machine], *, calibrated: bool = False, peak: str = PEAK) -> Platform:
    """The platform of a machine; ``others`` bound what its file lacks.

    Where a run on the machine gives the time of a step (``calibrated``), its peak and memory bandwidth are not needed,
    and are NaN where they are unknown. ``peak`` is the field of the precision. Raises ``InputError`` that names the
    missing field.
    """
    facts = {"accelerator_memory_gb_s": GIGA, peak: TERA}
    lacking = [name for name in facts if getattr(machine, name) is None]
    if machine.devices is None:
        lacking = ["accelerators", *([] if calibrated else lacking)]
    if machine.devices is None or (lacking and not calibrated):
        raise InputError(
            f"machine {machine.name} has no {' and no '.join(lacking)}, from which the time of a step follows; add "
            f"{'them' if len(lacking) > 1 else 'it'} with a source to a file of your own ({machine.name}.yaml)"
            + ("" if machine.devices is None else ", or give a run on it with --calibrate")
        )
    network, link = machine.network_gb_s, machine.accelerator_link_gb_s
    missing = [*lacking, *(["network_gb_s"] if network is None else [])]
    if link is None and machine.devices > 1:
        missing.append("accelerator_link_gb_s")
    bandwidth, peak_rate = ((getattr(machine, name) or math.nan) * unit for name, unit in facts.items())
    if network is None:
        network_fact = known_range(like(machine, others, "network_gb_s", per_device=True)).scaled(
            machine.devices * GIGA
        )
    else:
        network_fact = Fact(network * GIGA, network * GIGA)
    if link is None:
        link_fact = known_range(like(machine, others, "accelerator_link_gb_s")).scaled(GIGA)
    else:
        link_fact = Fact(link * GIGA, link * GIGA)
    return Platform(
        name=machine.name, title=machine.title, devices=machine.devices,
        accelerator=machine.accelerator or machine.processor or "", nodes=machine.nodes,
        memory_bytes_per_s=bandwidth, peak_flop_per_s=peak_rate,
        memory_bytes=None if machine.accelerator_memory_gib is None else machine.accelerator_memory_gib * 2**30,
        network_bytes_per_s=network_fact, link_bytes_per_s=link_fact,
        charge=machine.charge, charge_unit=machine.charge_unit, missing=tuple(missing),
    )  # fmt: skip


def like(machine: Machine, others: Sequence[Machine], name: str, per_device: bool = False) -> list[float]:
    """Values of a fact on other machines: those with the same kind of accelerator, or all where these are too few."""
    known = [
        (accelerator_model(other.accelerator), value / (other.devices if per_device else 1))
        for other in others
        if (value := getattr(other, name)) and other.devices and other.accelerators
    ]
    alike = [value for model, value in known if model == accelerator_model(machine.accelerator)]
    return alike if len(alike) >= FEWEST_ALIKE else [value for _, value in known]


def accelerator_model(name: str | None) -> str:
    """The generation of an accelerator, such as ``A100``; its whole name where the generation is not known."""
    match = MODEL.search(name or "")
    return match.group(1) if match else name or ""


def known_range(values: Iterable[float]) -> Fact:
    """The least and the most of what machines have."""
    known = list(values)
    return Fact(min(known), max(known))


def shipped_machines(folder: Path = MACHINES) -> list[Machine]:
    """The machines of the suite."""
    return [read_machine(path) for path in sorted(folder.glob("*.yaml"))]
