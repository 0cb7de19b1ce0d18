"""The state of a run: what a checkpoint must hold in addition to model and optimizer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass
class State:
    """Position in the data and history of a run. Counts are global, over all ranks."""

    epoch: int = 0
    """Finished epochs."""
    micro_batch: int = 0
    """Finished micro-batches of the current epoch; those of each simulated rank count separately."""
    step: int = 0
    """Optimizer steps so far."""
    samples: int = 0
    """Training samples so far."""
    resumed: int = 0
    """How often the run was continued from a checkpoint."""
    best: float | None = None
    """Best validation metric so far."""
    history: list[dict[str, float]] = field(default_factory=list)
    """One row per evaluation, as in ``epochs.csv``."""
    part_s: float = 0.0
    """Seconds of training since the last evaluation, in this attempt up to its checkpoint and in those before it."""
    epoch_losses: list[list[float]] = field(default_factory=list)
    """Rows of ``steps.csv`` since the last evaluation."""
    averaged: bool = False
    """Whether batch-norm statistics are averaged over ranks, since the run is in an evaluation or after one."""
    observers: dict[str, Any] = field(default_factory=dict)
    """States of the observers, by name."""

    @property
    def evaluated(self) -> float:
        """Epochs at the last evaluation, a whole number at the end of one; 0 before the first."""
        return self.history[-1]["epoch"] if self.history else 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> State:
        """The state in a checkpoint."""
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})
