"""What one run of a convergence study says about the epochs to its target."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST_BATCHES = 3
"""Fewest batches at which a run reached the target: a fit has two numbers, and one more shows whether they fit."""


@dataclass(frozen=True)
class EpochRun:
    """A run at a global batch size that met the target after more than ``above`` epochs and at most ``up_to``.

    ``up_to`` is infinite for a run that had not met the target when it ended, after ``above`` epochs.
    """

    batch_size: float
    above: float
    up_to: float

    @property
    def reached(self) -> bool:
        """Whether the run met the target."""
        return math.isfinite(self.up_to)
