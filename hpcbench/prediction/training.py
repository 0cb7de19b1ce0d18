"""What to predict: a training on some nodes of a machine, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hpcbench.prediction.epochs import Epochs
from hpcbench.prediction.input_limits import InputLimits
from hpcbench.prediction.planned_staging import PlannedStaging
from hpcbench.prediction.platforms import Platform
from hpcbench.prediction.workload import Work
from staging.errors import InputError


@dataclass(frozen=True)
class Training:
    """A training of one application at one size."""

    work: Work
    platform: Platform
    nodes: int
    """Nodes of one instance."""
    devices: int
    """Devices of each node; one rank trains on each."""
    global_batch: int
    accumulation: int
    newer: bool
    """Whether the code is as fast as that of v2.0, or else of v1.0."""
    train_samples: int
    validation_samples: int
    epochs: Epochs
    stages_first: bool = True
    """Whether data are staged before the first epoch, or arrive within it."""
    input_bytes_per_s: float | None = None
    """Rate at which samples reach a node's accelerators, as it is known; it takes the place of ``input_limits``."""
    input_limits: InputLimits | None = None
    """What bounds that rate; without both, the input is taken to be hidden behind the steps."""
    planned_staging: PlannedStaging | None = None
    """The staging by its plan and a probe; ``None``: as fitted to published entries, or as runs on the machine took."""
    runs: int = 1
    """Number of runs whose mean is asked for."""
    instances: int = 1
    """Trainings that run at once, of which the last counts."""
    start_spread_s: float = 0.0
    """Seconds between the starts of the first and the last instance."""

    @property
    def ranks(self) -> int:
        """Ranks of one instance."""
        return self.nodes * self.devices

    @property
    def local_batch(self) -> float:
        """Samples of a rank in a pass."""
        return self.global_batch / self.ranks / self.accumulation

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch."""
        return max(self.train_samples // self.global_batch, 1)

    @property
    def full_speed_s(self) -> float:
        """Seconds for the bytes that land on a node, at the full rate of its network."""
        return self.work.landed_on_node(self.nodes) / self.platform.network_bytes_per_s.central

    @property
    def input_s(self) -> float:
        """Seconds in which a node reads the samples of a step by the rate that is known; 0 where none is."""
        if self.input_bytes_per_s is None:
            return 0.0
        return self.global_batch / self.nodes * self.work.landed_bytes / self.input_bytes_per_s


def share_batch(global_batch: int, ranks: int, most: int) -> int:
    """Passes of each step, so that no rank has more than ``most`` samples at once.

    Raises ``InputError`` where the batch cannot be shared evenly.
    """
    if global_batch % ranks:
        least = global_batch if ranks > global_batch else max(n for n in range(1, ranks) if global_batch % n == 0)
        raise InputError(
            f"a global batch of {global_batch:,} cannot be shared evenly by {ranks:,} accelerators; {least:,} is the "
            "next number below that divides it"
        )
    share = global_batch // ranks
    passes = ceil(share / most)
    while share % passes:
        passes += 1
    return passes
