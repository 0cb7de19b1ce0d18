"""What training asks of any machine, by application: operations and bytes of a sample, messages, the dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from hpcbench.config.read_dataclass import from_values
from hpcbench.config.read_yaml import read_yaml
from hpcbench.suggest import suggest
from staging.errors import InputError

FILE = Path(__file__).with_name("workload.yaml")
GRADIENT_BYTES = 4
"""Bytes of a parameter's gradient: gradients travel as float32."""


@dataclass(frozen=True)
class Work:
    """Counts of one application at the published size."""

    application: str
    flop: float
    """Operations executed for a sample, forward and backward."""
    useful_flop: float
    """Products alone, without padding: what the suite counts for a sample."""
    memory_bytes: float
    """Moved to and from the memory of the accelerator for a sample."""
    footprint_bytes: float
    """Accelerator memory for a sample of the local batch."""
    parameters: int
    train_samples: int
    validation_samples: int
    stored_bytes: int
    """Bytes of a sample as it is published."""
    landed_bytes: int
    """Bytes of a sample as arrays."""
    source: str
    decoding_s: float | None = None
    """Processor time in which a sample is read and decoded; ``None`` where nobody measured the reader."""

    @property
    def gradient_bytes(self) -> int:
        """Bytes that a rank contributes to the all-reduce of a step."""
        return GRADIENT_BYTES * self.parameters

    @property
    def dataset_bytes(self) -> int:
        """Bytes of both splits as they are published."""
        return (self.train_samples + self.validation_samples) * self.stored_bytes

    def landed_on_node(self, nodes: int) -> int:
        """Bytes of the published dataset on the node that gets most, where each has its part of both splits."""
        return (
            sum(ceil(samples / nodes) for samples in (self.train_samples, self.validation_samples)) * self.stored_bytes
        )

    def seconds_per_sample(self, peak_flop_per_s: float, memory_bytes_per_s: float) -> float:
        """The roofline's time of a sample: the longer of computing and moving."""
        return max(self.flop / peak_flop_per_s, self.memory_bytes / memory_bytes_per_s)


@cache
def published_work() -> dict[str, Work]:
    """The counts of each application that published rounds have, by name."""
    return {
        name: from_values(Work, {"application": name, **values}, f"{FILE.name}: {name}.")
        for name, values in read_yaml(FILE).items()
    }


def work_of(application: str) -> Work:
    """The counts of an application. Raises ``InputError`` where no published round has it."""
    known = published_work()
    if application not in known:
        raise InputError(
            f"no published round has '{application}', so nothing tells its time on another machine; "
            f"{suggest(application, list(known))}"
        )
    return known[application]
