"""Which storage of a node its staged samples are read from, by the machine's file."""

from __future__ import annotations

from math import ceil

from hpcbench.batch.machine import Machine, Storage
from hpcbench.prediction.workload import Work

GIB, GB = 2**30, 1e9


def input_tier(machine: Machine, work: Work, nodes: int) -> Storage | None:
    """The storage whose rate bounds the input; ``None`` where the file has no rate, or where memory holds the data.

    Data land where there is most room. Where no room is known, the slowest storage counts.
    """
    if machine.memory_gib is not None and samples_bytes(work, nodes) <= machine.memory_gib * GIB:
        return None
    tier = landing_storage(machine)
    return tier if tier is not None and tier.read_gb_s is not None else None


def landing_storage(machine: Machine) -> Storage | None:
    """The storage of a node with most room; where no room is known, the slowest that has a rate."""
    if sized := [storage for storage in machine.storage if storage.gb is not None]:
        return max(sized, key=lambda storage: storage.gb or 0.0)
    timed = [storage for storage in machine.storage if storage.read_gb_s is not None]
    return min(timed, key=lambda storage: storage.read_gb_s or 0.0, default=None)


def samples_bytes(work: Work, nodes: int) -> int:
    """Bytes of a node's part of both splits, as its ranks read them."""
    return sum(ceil(samples / nodes) for samples in (work.train_samples, work.validation_samples)) * work.landed_bytes
