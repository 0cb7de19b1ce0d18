"""The data-parallel ranks whose work a process does: its own, or several simulated ones, pass after pass. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from staging.errors import InputError


@dataclass(frozen=True)
class DataRanks:
    """The real or simulated ranks that share each micro-batch, and the part of them that this process has."""

    total: int
    """Data-parallel ranks of the run."""
    local: range
    """The ranks whose work this process does."""
    joined: int = 1
    """How many of them go through the model together, as one batch, and so share batch-norm statistics."""
    processes: int = 1
    """Neighbouring processes that share batch-norm statistics; above 1 only if all of ``local`` go together."""

    @property
    def passes(self) -> int:
        """Passes through the model for one micro-batch."""
        return len(self.local) // self.joined


def data_ranks(rank: int, world_size: int, simulated: int | None = None, group_size: int = 1) -> DataRanks:
    """The part of process ``rank`` if each of ``world_size`` does the work of ``simulated`` neighbouring ranks.

    A batch-norm group is ``group_size`` neighbouring ranks. Raises ``InputError`` if the groups cannot be formed.
    """
    per_process = simulated or 1
    total = world_size * per_process
    if total % group_size:
        raise InputError(
            f"train.batchnorm_group_size ({group_size}) must divide the number of ranks ({total}); "
            "change it, or the number of ranks"
        )
    if group_size % per_process and per_process % group_size:
        raise InputError(
            f"train.batchnorm_group_size ({group_size}) must be a multiple of parallel.simulated_ranks ({per_process}) "
            "or divide it, so that whole processes make a group; change one of them"
        )
    local = range(rank * per_process, (rank + 1) * per_process)
    return DataRanks(total, local, min(group_size, per_process), max(group_size // per_process, 1))


def deal_to_nodes(ranks: int, nodes: int) -> list[int]:
    """The node of each rank: contiguous runs of ranks, whose lengths differ by at most one."""
    return [rank * nodes // ranks for rank in range(ranks)]
