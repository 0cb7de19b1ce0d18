"""How fast a node brings samples to its accelerators: its storage, its cores, and the link to each accelerator.

All of them work at the same time, so the slowest counts. What the machine's file does not tell is an interval. Samples
that no storage of a node holds are brought again in each epoch, at the rate of the staging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hpcbench.batch.machine import Storage
from hpcbench.prediction.platforms import Fact, Platform
from hpcbench.prediction.step_time import drawn
from hpcbench.prediction.workload import Work

Floats = NDArray[np.float64]

GB = 1e9
STATED = 1.5
"""A rate in a machine's file holds within this factor, as does one that a single rank measured."""
DRIVE_BYTES_PER_S = Fact(2e9, 7e9)
"""What a node reads from a drive that nobody timed: solid-state drives on PCI Express 3 and 4."""
DRIVE_BYTES = 3.84e12
"""Room of such a drive; a storage with more room has several."""
DECODING_BYTES_PER_S = Fact(0.3e9, 4e9)
"""What a core makes into arrays, where nobody measured the reader: from inflating gzip to copying plain arrays."""


@dataclass(frozen=True)
class InputLimits:
    """What bounds the samples that reach the accelerators of a node. Rates are in bytes of samples as arrays."""

    storage: str | None
    """Where a node keeps its samples, in words; ``None``: in its memory."""
    storage_bytes_per_s: Fact | None
    """``None``: memory, which does not limit."""
    is_timed: bool
    """Whether the machine's file has that rate."""
    unheld: tuple[float, float]
    """Share of a node's samples that it has no room for: kept as they are published, and kept as arrays."""
    decoding_bytes_per_s: Fact | None = None
    """All cores of a node; ``None`` where a run measured steps with their input."""
    link_bytes_per_s: Fact | None = None
    """From the memory of a node to an accelerator; ``None`` likewise, and for processors."""


@dataclass(frozen=True)
class InputDraws:
    """The limits as numbers: draws of them, or their central values. A rate without a limit is infinite."""

    storage: Floats
    unheld: Floats
    decoding: Floats
    link: Floats

    @classmethod
    def central(cls, limits: InputLimits) -> InputDraws:
        """The central values."""
        storage, decoding, link = (np.asarray(np.inf if fact is None else fact.central) for fact in rates(limits))
        return cls(storage, np.asarray(sum(limits.unheld) / 2), decoding, link)

    @classmethod
    def draw(cls, limits: InputLimits, rng: np.random.Generator, count: int) -> InputDraws:
        """``count`` draws: logarithms of rates, and the share, uniform between their ends."""
        storage, decoding, link = (
            np.full(count, np.inf) if fact is None else drawn(fact, rng, count) for fact in rates(limits)
        )
        return cls(storage, rng.uniform(*limits.unheld, count), decoding, link)

    def seconds(self, sample_bytes: float, samples: float, devices: int, staging_s: Floats) -> Floats:
        """Seconds until ``samples`` of a node have reached its ``devices``.

        ``staging_s``: seconds in which the staging would bring all samples of as many steps as are asked for here.
        """
        size = sample_bytes * samples
        parts = (
            size * (1 - self.unheld) / self.storage, self.unheld * staging_s, size / self.decoding,
            size / devices / self.link,
        )  # fmt: skip
        return np.asarray(np.maximum.reduce(np.broadcast_arrays(*parts)))


def rates(limits: InputLimits) -> tuple[Fact | None, Fact | None, Fact | None]:
    """Rates of storage, decoding and link."""
    return limits.storage_bytes_per_s, limits.decoding_bytes_per_s, limits.link_bytes_per_s


def input_limits(platform: Platform, work: Work, nodes: int, *, measured: bool = False) -> InputLimits:
    """The limits of a training on ``nodes`` nodes; ``measured``: whether a run on the machine timed steps with input.

    Data land where there is most room, which may be memory. Where no room is known, the slowest storage counts.
    """
    decoding = None if measured else decoding_rate(platform, work)
    link = None if measured else platform.host_link_bytes_per_s
    landed, stored, storage = samples_bytes(work, nodes), work.landed_on_node(nodes), landing_storage(platform.storage)
    memory = platform.node_memory_bytes
    if memory is not None and landed <= memory:
        return InputLimits(None, None, False, (0.0, 0.0), decoding, link)
    if memory is not None and (storage is None or has_less_room(storage, memory)):
        return InputLimits(None, None, False, unheld(stored, landed, memory), decoding, link)
    if storage is None:
        return InputLimits("a drive", DRIVE_BYTES_PER_S, False, (0.0, 0.0), decoding, link)
    room = None if storage.gb is None else storage.gb * GB
    if storage.in_memory and memory is not None:  # the same room as for what memory holds, not that of the mount
        room = memory
    rate = storage_rate(storage)
    words = None if rate is None else storage.path or "the storage"
    return InputLimits(words, rate, storage.read_gb_s is not None, unheld(stored, landed, room), decoding, link)


def has_less_room(storage: Storage, memory: float) -> bool:
    """Whether a storage outside of memory is known to hold less than memory does."""
    return not storage.in_memory and storage.gb is not None and storage.gb * GB < memory


def decoding_rate(platform: Platform, work: Work) -> Fact:
    """What all cores of a node make into arrays: by the reader that was measured, or as readers can be."""
    if work.decoding_s is None:
        return platform.cores.times(DECODING_BYTES_PER_S)
    core = work.landed_bytes / work.decoding_s
    return platform.cores.times(Fact(core / STATED, core * STATED))


def storage_rate(storage: Storage) -> Fact | None:
    """What a node reads from a storage; ``None`` for memory that nobody timed."""
    if storage.read_gb_s is not None:
        rate = storage.read_gb_s * GB
        return Fact(rate / STATED, rate * STATED)
    if storage.in_memory:
        return None
    return DRIVE_BYTES_PER_S.scaled(max(1.0, (storage.gb or 0.0) * GB / DRIVE_BYTES))


def unheld(stored: float, landed: float, room: float | None) -> tuple[float, float]:
    """The share of a node's samples beyond its room: as they are published, and as arrays, the smaller first."""
    if room is None:
        return 0.0, 0.0
    low, high = sorted(max(0.0, 1 - room / size) for size in (stored, landed))
    return low, high


def landing_storage(storages: Sequence[Storage]) -> Storage | None:
    """The storage of a node with most room; where no room is known, the slowest that has a rate, or else any."""
    if sized := [storage for storage in storages if storage.gb is not None]:
        return max(sized, key=lambda storage: storage.gb or 0.0)
    timed = [storage for storage in storages if storage.read_gb_s is not None]
    return min(timed, key=lambda storage: storage.read_gb_s or 0.0, default=next(iter(storages), None))


def samples_bytes(work: Work, nodes: int) -> int:
    """Bytes of a node's part of both splits, as its ranks read them."""
    return sum(ceil(samples / nodes) for samples in (work.train_samples, work.validation_samples)) * work.landed_bytes
