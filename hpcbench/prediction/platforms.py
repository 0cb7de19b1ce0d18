"""What the model needs of a machine: accelerators, memory bandwidth, peak and links, from the machine's file.

A fact that a file lacks becomes an interval where other machines bound it, and an error message where they do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.machine import MACHINES, Machine, Storage, read_machine
from staging.errors import InputError

GIGA, TERA = 1e9, 1e12
PEAK = "peak_16bit_tflop_s"
FEWEST_ALIKE = 9
"""The range of n machines holds another one with chance (n - 1) / (n + 1): 80 % from 9."""
PCI_EXPRESS_GB_S = {"P100": 15.75, "V100": 15.75, "RTX": 15.75, "A100": 31.5, "H100": 63.0, "H200": 63.0, "B200": 63.0}
"""What PCI Express carries to an accelerator in 16 lanes, by its generation: 3, 4 and 5 (PCI-SIG)."""
REACHED = 0.4
"""Least share of a link that an accelerator gets: two may share it, and headers take a fifth."""
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

    def times(self, other: Fact) -> Fact:
        """The product of two facts, each of which may be at either end."""
        return Fact(self.low * other.low, self.high * other.high)


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
    cores: Fact = Fact(1.0, 1.0)
    """Cores of a node."""
    host_link_bytes_per_s: Fact | None = None
    """From the memory of a node to each accelerator; ``None`` for processors."""
    node_memory_bytes: float | None = None
    storage: tuple[Storage, ...] = ()
    """Places on a node that jobs may write to."""
    missing: tuple[str, ...] = ()
    """Fields of the machine's file that are unknown and have an interval instead."""

    @property
    def on_processors(self) -> bool:
        """Whether the ranks train on processors."""
        return self.host_link_bytes_per_s is None

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
            + ("" if machine.devices is None else ", or give a run on it with --calibrate, or its --characterization")
        )
    network, link = machine.network_gb_s, machine.accelerator_link_gb_s
    unknown = {"network_gb_s": network is None, "accelerator_link_gb_s": link is None and machine.devices > 1,
               "cores": machine.cores is None}  # fmt: skip
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
        charge=machine.charge, charge_unit=machine.charge_unit, cores=cores_of(machine, others),
        host_link_bytes_per_s=host_link_of(machine),
        node_memory_bytes=None if machine.memory_gib is None else machine.memory_gib * 2.0**30,
        storage=machine.storage, missing=(*lacking, *(name for name, is_unknown in unknown.items() if is_unknown)),
    )  # fmt: skip


def check_device(where: str, device_type: str, device: str, platform: Platform) -> None:
    """Raise ``InputError`` for a measurement on processors where the platform has accelerators, or the other way round.

    ``device_type`` is torch's name, and empty where it is not known; ``device`` names the device in words.
    """
    if device_type and (device_type == "cpu") != platform.on_processors:
        kind = "processors" if platform.on_processors else "accelerators"
        raise InputError(
            f"{where} was measured on {device or device_type}, which tells nothing of the "
            f"{platform.accelerator or kind} of {platform.name}; give one of {kind}"
        )


def cores_of(machine: Machine, others: Sequence[Machine]) -> Fact:
    """Cores of a node, or as many for each device as other machines have."""
    if machine.cores is not None:
        return Fact(machine.cores, machine.cores)
    return known_range(like(machine, others, "cores", per_device=True)).scaled(machine.devices or 1)


def host_link_of(machine: Machine) -> Fact | None:
    """Bytes per second from the memory of a node to each accelerator: of its file, or of PCI Express at its time."""
    if not machine.accelerators:
        return None
    if machine.host_link_gb_s is not None:
        return Fact(machine.host_link_gb_s * GIGA, machine.host_link_gb_s * GIGA)
    model = accelerator_model(machine.accelerator).split(" ")[0]
    rates = [PCI_EXPRESS_GB_S[model]] if model in PCI_EXPRESS_GB_S else list(PCI_EXPRESS_GB_S.values())
    return Fact(REACHED * min(rates) * GIGA, max(rates) * GIGA)


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
